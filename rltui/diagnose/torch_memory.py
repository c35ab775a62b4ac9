"""The numbers in torch's message that GPU memory ran out, in all its wordings."""

from __future__ import annotations

from rltui.diagnose.wording import compiled

_UNIT_GIB = {"B": 1 / 2**30, "bytes": 1 / 2**30, "KiB": 2**-20, "MiB": 2**-10, "GiB": 1.0, "TiB": 1024.0}


def memory_numbers(text: str) -> dict[str, float]:
    """Return the GiB that torch's message names: ``asked``, ``total``, ``free``, ``allocated``, ``slack``, ``others``.

    ``slack`` is what torch reserved and does not use; ``others`` sums up the processes the message lists.
    """
    found: dict[str, float] = {}
    for name, pattern in _NUMBERS.items():
        match = compiled(pattern).search(text)
        if match is not None:
            found[name] = float(match[1]) * _UNIT_GIB[match[2]]
    if "reserved" in found:  # wording before torch 2.1: reserved includes what is allocated
        found["own"] = found.pop("reserved")
        found["slack"] = max(0.0, found["own"] - found.get("allocated", 0.0))
    if "free_old" in found:
        found["free"] = found.pop("free_old")
    processes = compiled(_PROCESS).findall(text)
    found["processes"] = float(len(processes))
    found["others"] = sum(float(number) * _UNIT_GIB[unit] for number, unit in processes)
    return found


def size_words(gib: float) -> str:
    """``gib`` for people; a hundredth of a GiB is what may have been missing."""
    return f"{gib:.1f} GiB" if gib >= 1.0 or not gib else f"{1024 * gib:.0f} MiB"


_SIZE = r"(\d+(?:\.\d+)?) (bytes|[KMGT]iB)"

_NUMBERS = {
    "asked": rf"[Tt]ried to allocate {_SIZE}",
    "total": rf"(?:total capacity of|;) {_SIZE}(?: total capacity|,| of which)",
    "free": rf"of which {_SIZE} is free",
    "allocated": rf"(?:Of the allocated memory|total capacity;) {_SIZE}",
    "slack": rf"and {_SIZE} is reserved by PyTorch but unallocated",
    "reserved": rf"free; {_SIZE} reserved in total",
    "free_old": rf"already allocated; {_SIZE} free",
    "own": rf"this process has {_SIZE} memory in use",
}

_PROCESS = rf"Process \d+ has {_SIZE} memory in use"


def foreign_gib(numbers: dict[str, float]) -> float:
    """Return the GiB in use on the GPU that are not this process's own, as far as the message tells."""
    if "total" not in numbers:
        return 0.0
    used = numbers["total"] - numbers.get("free", 0.0)
    own = max(numbers.get("own", 0.0), numbers.get("allocated", 0.0) + numbers.get("slack", 0.0))
    return max(0.0, used - own) if "allocated" in numbers else 0.0


def is_shared(numbers: dict[str, float]) -> bool:
    """Whether others hold the card as well.

    Two ranks on one card show as processes that hold memory besides this one; one listed process may be this one.

    In a container no process is listed, and old torch lists none: then what this one holds is all there is to go by.
    """
    total = numbers.get("total", float("inf"))
    foreign = foreign_gib(numbers)
    if "allocated" not in numbers:
        return numbers["processes"] >= 3 and numbers["others"] > 0.5 * total
    if numbers["processes"] >= 2:
        return foreign > 0.1 * total
    return (numbers["processes"] >= 1 or "own" in numbers) and foreign > 0.5 * total
