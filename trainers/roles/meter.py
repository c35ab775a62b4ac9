"""The highest memory of this process, moment by moment: what the card's allocator held, and what the process did.

A moment is one of the words of ``rltui.memory``: load, log-probs, backward, optimizer step, weight sync, generate; and
save. Each process has one meter, because the allocator's and the kernel's high-water marks are the process's.
"""

from __future__ import annotations

import functools
import os
import resource
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

GIB = 2**30


class Meter:
    """Keeps the peaks; two moments at once, in two threads, share what they reach."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[str] = []
        self._peaks: dict[str, dict[str, float]] = {}

    @contextmanager
    def moment(self, name: str) -> Iterator[None]:
        """Credit what is reached inside to ``name``."""
        with self._lock:
            self._settle()
            self._open.append(name)
        try:
            yield
        finally:
            with self._lock:
                self._settle()
                self._open.remove(name)

    def peaks(self) -> dict[str, dict[str, float]]:
        """By moment: ``resident_gib``, and where a card is used ``allocated_gib`` and ``reserved_gib``."""
        with self._lock:
            return {name: dict(peak) for name, peak in self._peaks.items()}

    def _settle(self) -> None:
        """Credit the high-water marks to the open moments, and start them anew."""
        reached = _high_water()
        for name in self._open:
            peak = self._peaks.setdefault(name, {})
            peak.update({kind: max(size, peak.get(kind, 0.0)) for kind, size in reached.items()})
        _reset_high_water()


METER = Meter()
"""That of this process."""


def measured(moment: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a method whose memory is that of ``moment``."""

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(method)
        def run(*arguments: P.args, **named: P.kwargs) -> T:
            with METER.moment(moment):
                return method(*arguments, **named)

        return run

    return decorate


def memory_report(_actor: object = None) -> dict[str, Any]:
    """What this process tells of its memory: ``host``, ``pid``, ``now`` and the peaks of its ``moments``, in GiB."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "now": _now(), "moments": METER.peaks()}


def _cuda() -> Any:
    """``torch.cuda`` where this process uses a card."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


def resident_now_gib() -> float:
    """Resident memory of this process, in GiB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / GIB


def _now() -> dict[str, float]:
    cuda, resident = _cuda(), resident_now_gib()
    if cuda is None:
        return {"resident_gib": resident}
    return {
        "resident_gib": resident,
        "allocated_gib": cuda.memory_allocated() / GIB,
        "reserved_gib": cuda.memory_reserved() / GIB,
    }


def _high_water() -> dict[str, float]:
    # the mark that /proc/self/status calls VmHWM, without the file: moments are short where models are small
    cuda, resident = _cuda(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB
    if cuda is None:
        return {"resident_gib": resident}
    return {
        "resident_gib": resident,
        "allocated_gib": cuda.max_memory_allocated() / GIB,
        "reserved_gib": cuda.max_memory_reserved() / GIB,
    }


def _reset_high_water() -> None:
    cuda = _cuda()
    if cuda is not None:
        cuda.reset_peak_memory_stats()
    with suppress(OSError):  # where a container forbids it, a moment's peak is that of all before it, too
        os.write(_clear_refs(os.getpid()), b"5")  # proc(5): resets the resident set's peak


@functools.cache
def _clear_refs(pid: int) -> int:
    """Descriptor of the file of process ``pid``, which a fork of it must not write to."""
    return os.open(f"/proc/{pid}/clear_refs", os.O_WRONLY)
