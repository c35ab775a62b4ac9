"""The logs of one attempt, of all its nodes: which there are, and the tail of the chosen one or of all together."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from rltui.cluster.relay_types import Entry
from rltui.onnode import rundir
from rltui.onnode.lost_nodes import host_of
from rltui.watch.lines import LineFollower, entries_of
from rltui.watch.snapshots import ALL_LOGS, LogFile, LogSnapshot
from rltui.watch.text import plain, plain_line

if TYPE_CHECKING:
    from rltui.cluster.relay_client import RelayClient

FIRST_BYTES = 1 << 18
MAX_LINES = 2000
LIST_EVERY_S = 5.0
MOST_LOGS = 500
MOST_MERGED = 32
"""Logs that are followed together: those of the attempt itself, then the largest."""

MERGED_FIRST_BYTES = 1 << 15
DAY_S = 86400
RAY_LOGS = "ray-logs"

_CLOCK = re.compile(r"\b(\d\d):(\d\d):(\d\d)\b")
CLOCK_WITHIN = 48
"""Characters at a line's start in which its time stands."""

_IDENTITY = re.compile(r"([0-9a-f]{6})[0-9a-f]{20,}")
"""Ray's names of workers and jobs, of which the beginning tells enough; their process id follows."""


def is_log(name: str) -> bool:
    """Whether a file of an attempt is a log that can be followed."""
    return name.endswith((".log", ".out", ".err"))


def log_files(entries: Sequence[Entry], of_ray: Sequence[Entry]) -> tuple[LogFile, ...]:
    """The logs among the entries of an attempt and of its ``ray-logs``: its own output first, then by name."""
    nodes = sorted(filter(None, (host_of(entry.name) for entry in entries)), key=len, reverse=True)
    # of a job that rltui did not start they are links to where it writes
    own = [(entry.name, entry.size) for entry in entries if entry.type in ("file", "link") and is_log(entry.name)]
    rays = [(f"{RAY_LOGS}/{entry.name}", entry.size) for entry in of_ray if entry.type == "file" and is_log(entry.name)]
    named = sorted(own, key=lambda one: (one[0] != rundir.OUT_LOG, one[0])) + sorted(rays)
    return tuple(
        LogFile(name=plain(name), size=size, node=next((node for node in nodes if _is_of(node, name)), ""))
        for name, size in named[:MOST_LOGS]
    )


def label_of(file: LogFile) -> str:
    """What leads the lines of a log among others: its name, and its node where the name does not tell."""
    label = _IDENTITY.sub(r"\1", file.name.rpartition("/")[2].rpartition(".")[0])
    return f"{file.node}:{label}" if file.node and file.node not in label else label


def _is_of(node: str, name: str) -> bool:
    """Whether a log's name has the node's in it, and not only that of another which begins with it."""
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(node)}(?![A-Za-z0-9])", name) is not None


def clock_s(text: str) -> int | None:
    """Second of the day at which a line was written, from the time at its start; None where there is none."""
    found = _CLOCK.search(text, 0, CLOCK_WITHIN)
    return int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3]) if found else None


def merged(batches: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """Lines of several logs in the order of their times; a line without one stays behind the one before it.

    Args:
        batches: Label of a log and its new lines, oldest first.
    """
    placed: list[tuple[int, str]] = []
    for label, lines in batches:
        seconds = _since_midnight([clock_s(text) for text in lines])
        at = next((second for second in seconds if second is not None), 0)
        for text, second in zip(lines, seconds, strict=True):
            at = at if second is None else second
            placed.append((at, f"{label} {text}"))
    return [text for _, text in sorted(placed, key=lambda one: one[0])]


def _since_midnight(clocks: Sequence[int | None]) -> list[int | None]:
    """Seconds of the day, oldest first, as seconds since the midnight before the last of them."""
    found: list[int | None] = []
    days, after = 0, None
    for clock in reversed(clocks):
        if clock is not None:
            ahead = 0 if after is None else clock - after
            # far ahead of the one after it: of the day before; and back again, where programs of two zones take turns
            days = days - 1 if ahead > DAY_S // 2 else min(0, days + 1) if ahead < -DAY_S // 2 else days
            after = clock
        found.append(None if clock is None else clock + days * DAY_S)
    return found[::-1]


class AttemptLogs:
    """Follows the wanted logs of an attempt.

    Args:
        client: The relay of the cluster.
        path: The attempt's directory.
        clock: Monotonic seconds.

    Attributes:
        files: The logs there are.
    """

    def __init__(self, client: RelayClient, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.files: tuple[LogFile, ...] = ()
        self._client = client
        self._path = path
        self._clock = clock
        self._listed_at: float | None = None
        self._wanted = ""
        self._followers: dict[str, LineFollower] = {}
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._fresh: dict[str, list[str]] = {}
        self._snapshot: LogSnapshot | None = None

    def followers(self, wanted: str = "") -> list[LineFollower]:
        """The files to read, given which log is wanted; new ones are looked for every few seconds."""
        if wanted != self._wanted:
            self._wanted, self._followers = wanted, {}
            self._lines.clear()
            self._fresh, self._snapshot = {}, None
        now = self._clock()
        if self._listed_at is None or now - self._listed_at >= LIST_EVERY_S:
            self._listed_at = now
            own, of_ray = (entries_of(self._client, path) for path in (self._path, f"{self._path}/{RAY_LOGS}"))
            self.files = log_files(own, of_ray)
        for name in self._names():
            if name not in self._followers:
                self._followers[name] = self._follower(name)
        return list(self._followers.values())

    def snapshot(self) -> LogSnapshot:
        """The newest lines read so far; the same object until there is something new."""
        if self._fresh or self._snapshot is None:
            if self._wanted == ALL_LOGS:
                self._lines.extend(merged(self._fresh.items()))
            else:
                self._lines.extend(text for lines in self._fresh.values() for text in lines)
            self._fresh = {}
            offset = max((one.line_end for one in self._followers.values()), default=0)
            self._snapshot = LogSnapshot(lines=tuple(self._lines), offset=offset, name=self._wanted)
        return self._snapshot

    def _names(self) -> list[str]:
        if self._wanted != ALL_LOGS:
            return [self._wanted or rundir.OUT_LOG]
        ranked = sorted(self.files, key=lambda file: (RAY_LOGS in file.name, -file.size))
        return [file.name for file in ranked[:MOST_MERGED]]

    def _follower(self, name: str) -> LineFollower:
        key = f"[{label_of(next((file for file in self.files if file.name == name), LogFile(name=name)))}]"

        def take(lines: list[bytes]) -> None:
            self._fresh.setdefault(key, []).extend(plain_line(line) for line in lines[-MAX_LINES:])

        first = MERGED_FIRST_BYTES if self._wanted == ALL_LOGS else FIRST_BYTES
        return LineFollower(f"{self._path}/{name}", take, first_bytes=first, keep_tail=True)
