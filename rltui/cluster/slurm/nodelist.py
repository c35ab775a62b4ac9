"""Slurm's host lists: ``node[01-03,7],login1`` to names and back, as ``scontrol show hostnames`` does it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import product

from rltui.errors import RltuiError

MAX_NAMES = 65536
"""Names of one list; Slurm itself takes 65 533 in one range. A longer list is a mistake or an attack."""

NOTHING = frozenset({"", "(null)", "None", "N/A", "None assigned"})
"""What tools write where a job has no nodes."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?\Z")
_TOKEN = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})\Z")


class NodeListError(RltuiError):
    """A text is no list of hosts."""

    exit_code = 2


@lru_cache(4096)  # the same lists come with every poll
def expand(text: str) -> tuple[str, ...]:
    """Return the names in a host list, in its order, twice where they are there twice; none where there are no nodes.

    Zero padding counts (``n[08-10]``), brackets may be several (``r[1-2]n[1-4]``) and, unlike for Slurm 22.05, be
    followed by text.

    Raises:
        NodeListError: It is no host list, holds a name with other letters than ``A-Za-z0-9._-``, or is too long.
    """
    text = text.strip()
    if text in NOTHING:
        return ()
    names: list[str] = []
    for part in _split(text):
        names += _expand_one(part, MAX_NAMES - len(names))
    return tuple(names)


def is_host_name(name: str) -> bool:
    """Whether ``name`` is one host's name, safe as a word of a command and as a name of a file."""
    return _NAME.match(name) is not None


def fold(names: Iterable[str]) -> str:
    """Return the host list of ``names``, in their order; neighbours in a run of numbers become a range.

    Raises:
        NodeListError: One of them is no host name.
    """
    parts: list[str] = []
    prefix, ranges = "", list[list[str]]()
    for name in names:
        if not is_host_name(name):
            raise NodeListError(f"{name[:80]!r} is no host name.")
        match = _NUMBERED.match(name)
        if match is None:
            parts += [*_written(prefix, ranges), name]
            ranges = []
        elif ranges and match[1] == prefix and _is_next(ranges[-1][-1], match[2]):
            ranges[-1] = [ranges[-1][0], match[2]]
        elif ranges and match[1] == prefix:
            ranges.append([match[2]])
        else:
            parts += _written(prefix, ranges)
            prefix, ranges = match[1], [[match[2]]]
    return ",".join([*parts, *_written(prefix, ranges)])


def merged(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """Return both lists in one, each name once, by name with numbers in their order."""
    return tuple(sorted({*first, *second}, key=natural_key))


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key that puts node10 behind node9."""
    pieces = re.split(r"([0-9]+)", name)
    return tuple((0, int(piece[:18]), piece) if piece.isdigit() else (1, 0, piece) for piece in pieces if piece)


def _split(text: str) -> list[str]:
    """Split at commas and blanks that are outside of brackets."""
    parts, depth, begin = list[str](), 0, 0
    for place, letter in enumerate(text):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
        elif depth == 0 and (letter == "," or letter.isspace()):
            parts.append(text[begin:place])
            begin = place + 1
        if depth not in (0, 1):
            raise NodeListError(f"The brackets of the host list {text[:80]!r} do not match.")
    if depth:
        raise NodeListError(f"A bracket of the host list {text[:80]!r} is not closed.")
    parts.append(text[begin:])
    return [part for part in parts if part]


def _expand_one(part: str, limit: int) -> list[str]:
    choices: list[list[str]] = []
    count = 1
    for match in _TOKEN.finditer(part):
        choices.append([match[2]] if match[1] is None else _numbers(match[1], part))
        count *= len(choices[-1])
        if count > limit:
            raise NodeListError(f"The host list {part[:80]!r} has more than {MAX_NAMES} names.")
    names = ["".join(pieces) for pieces in product(*choices)]
    for name in names:
        if not is_host_name(name):
            raise NodeListError(f"{name[:80]!r} is no host name.")
    return names


def _numbers(inside: str, part: str) -> list[str]:
    numbers: list[str] = []
    for piece in inside.split(","):
        match = _RANGE.match(piece)
        low, high = (match[1], match[2] or match[1]) if match else ("1", "0")
        if int(low) > int(high):
            raise NodeListError(f"{piece[:40]!r} in the host list {part[:80]!r} is no range.")
        if len(numbers) + int(high) - int(low) >= MAX_NAMES:
            raise NodeListError(f"The host list {part[:80]!r} has more than {MAX_NAMES} names.")
        # as in Slurm, the lower end's width is everybody's
        numbers += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return numbers


def _is_next(last: str, number: str) -> bool:
    if int(number) != int(last) + 1:
        return False
    # n9, n10 is a range and n09, n10 too, but n09, n010 is none
    return number == str(int(last) + 1).zfill(len(last))


def _written(prefix: str, ranges: Sequence[Sequence[str]]) -> list[str]:
    if not ranges:
        return []
    if len(ranges) == 1 and len(ranges[0]) == 1:
        return [prefix + ranges[0][0]]
    return [f"{prefix}[{','.join('-'.join(one) for one in ranges)}]"]
