"""Processes and their descendants: what memory they hold, and ending those that answer no more."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

POLL_S = 0.1

TITLE = b"ray::"
"""What the command line of a role's process begins with; another process that was given its number has another."""


def family(pid: int) -> Iterator[Path]:
    """Folders in ``/proc`` of process ``pid`` and its descendants, parents first; what is gone is left out."""
    pending = [pid]
    while pending:
        process = Path("/proc") / str(pending.pop())
        with contextlib.suppress(OSError):
            # by thread: a child is listed under the one that forked it (proc(5))
            for children in process.glob("task/*/children"):
                pending += [int(child) for child in children.read_text().split()]
        if process.exists():
            yield process


def end_process(pid: int, deadline_s: float) -> bool:
    """Kill a role's process on this node and its descendants; returns whether all are gone within ``deadline_s``.

    Only SIGKILL will do: a stopped process sees no other signal, and the workers of an engine that hangs may wait for
    each other.
    """
    # noted before the kill: children of a dead parent go to another one, and nothing leads to them
    members = list(family(pid))
    try:
        if not (Path("/proc") / str(pid) / "cmdline").read_bytes().startswith(TITLE):
            return True
    except FileNotFoundError:
        return True
    for process in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process.name), signal.SIGKILL)
    deadline = time.monotonic() + deadline_s
    while left := [process for process in members if _is_running(process)]:
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    return not left


def resident_gib(pid: int) -> float:
    """Return the resident memory of process ``pid`` and its descendants, in GiB; what is gone counts for nothing."""
    total = 0
    for process in family(pid):
        with contextlib.suppress(OSError):
            total += int((process / "statm").read_text().split()[1])
    return total * os.sysconf("SC_PAGE_SIZE") / 2**30


def _is_running(process: Path) -> bool:
    """Whether it still holds memory: a zombie holds none, and an unreadable one is gone."""
    try:
        # from the last bracket on: a process's name may have brackets and spaces of its own (proc(5))
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
