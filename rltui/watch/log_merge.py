"""All logs of an attempt as one stream in the order of time, read from any place on, forwards or backwards.

Nothing is loaded but what is given: each log is read a piece at a time where the stream has come to, and the pieces
are merged by the times that lines begin with. A line without a time belongs to the one above it in the same log. A log
that says no times at all is spread evenly from the attempt's beginning to when it was last written.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import tzinfo

from msgspec import Struct

from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import FileChunk, FileRange
from rltui.watch.attempt_logs import label_of
from rltui.watch.log_search import LogHit, LogQuery, search_log
from rltui.watch.log_times import Clock, offsets_since, place_line, timed_lines
from rltui.watch.snapshots import LogFile
from rltui.watch.text import plain_line

BUFFER_BYTES = 16 << 20
"""Of all logs together, what is read ahead."""

LEAST_BYTES, MOST_BYTES = 32 << 10, 512 << 10
"""Of one log: at first, so that a screen is there at once, then twice as much each time."""

HEAD_BYTES = 16 << 10
"""Read of a log's beginning and end, to see whether its lines say times; and before a hit, for the time above it."""

Frontier = dict[str, int]
"""By log, bytes that are before a place in the merged stream: always the beginning of a line."""


class LogSource(Struct, frozen=True):
    """A log that takes part: its name below the attempt, what leads its lines, and what its times mean."""

    name: str
    label: str
    path: str
    size: int
    end: int
    """Where its last whole line ends."""
    clock: Clock
    is_timed: bool

    def spread(self, offset: int) -> float:
        """Where in time a place is of a log that says no times, epoch seconds."""
        share = min(1.0, offset / self.size) if self.size else 1.0
        return self.clock.oldest + share * max(0.0, self.clock.newest - self.clock.oldest)

    def offset_at(self, when: float) -> int:
        """About where in the file the lines of ``when`` are, taking lines as evenly spread in time."""
        span = self.clock.newest - self.clock.oldest
        share = (when - self.clock.oldest) / span if span > 0 else float(when > self.clock.newest)
        return int(self.size * min(1.0, max(0.0, share)))


class MergedLine(Struct, frozen=True):
    """A line: when it was written (epoch seconds, as far as is known), its log, where it begins and ends, its text."""

    at: float
    log: str
    offset: int
    end: int
    text: str


def open_sources(
    client: RelayClient, attempt: str, files: Sequence[LogFile], zone: tzinfo, oldest: float
) -> list[LogSource]:
    """Look at both ends of ``files`` (below ``attempt``), in one round trip; what cannot be read is left out.

    Args:
        client: The relay of the cluster.
        attempt: The attempt's directory.
        files: The logs.
        zone: The cluster's time zone.
        oldest: When the attempt began, epoch seconds.
    """
    paths = [f"{attempt}/{file.name}" for file in files]
    ranges = [FileRange(path, offset, HEAD_BYTES) for path in paths for offset in (0, None)]
    answers = client.read_many(ranges)
    sources = []
    for file, path, head, tail in zip(files, paths, answers[::2], answers[1::2], strict=True):
        if not isinstance(head, FileChunk) or not isinstance(tail, FileChunk):
            continue
        clock = Clock(zone, newest=tail.mtime, oldest=min(oldest, tail.mtime))
        lines = timed_lines(head.data, 0) + timed_lines(tail.data, tail.offset)
        is_timed = any(clock.read(text) is not None for _, text in lines)
        end = tail.offset + (tail.data.rfind(b"\n") + 1 or len(tail.data))
        sources.append(LogSource(file.name, label_of(file), path, tail.size, end, clock, is_timed))
    return sources


def end_of(sources: Iterable[LogSource], *, whole_only: bool = False) -> Frontier:
    """The place behind everything, or behind the last whole line of each log."""
    return {source.name: source.end if whole_only else source.size for source in sources}


def place_of(client: RelayClient, sources: Sequence[LogSource], when: float) -> Frontier:
    """The place before the first line of each log that was written at ``when`` (epoch seconds) or later."""
    timed = {source.path: (source.size, source.clock) for source in sources if source.is_timed}
    found = offsets_since(client, timed, when) if timed else {}
    others = [source for source in sources if not source.is_timed]
    guesses = [max(0, source.offset_at(when) - 1) for source in others]
    answers = client.read_many([FileRange(one.path, at, HEAD_BYTES) for one, at in zip(others, guesses, strict=True)])
    for source, at, answer in zip(others, guesses, answers, strict=True):
        line = answer.data.find(b"\n") + 1 if at and isinstance(answer, FileChunk) else 0
        found[source.path] = at + line
    return {source.name: found[source.path] for source in sources}


class MergedReader:
    """Reads on from a place, in one direction.

    Args:
        client: The relay of the cluster.
        sources: The logs.
        place: From where; a log that is not in it is read from its beginning.
        backwards: Whether lines come newest first.
        whole_only: Leave half a line at the end of a log: its rest may come.

    Attributes:
        place: Where it has come to.
    """

    def __init__(
        self,
        client: RelayClient,
        sources: Sequence[LogSource],
        place: Mapping[str, int],
        *,
        backwards: bool = False,
        whole_only: bool = False,
    ) -> None:
        self.place: Frontier = {source.name: place.get(source.name, 0) for source in sources}
        self._client = client
        self._sources = sources
        self._backwards = backwards
        self._whole_only = whole_only
        self._most = min(MOST_BYTES, max(LEAST_BYTES, BUFFER_BYTES // max(1, len(sources))))
        self._bytes = [LEAST_BYTES for _ in sources]
        self._read_to = dict(self.place)
        self._at = [math.inf if backwards else -math.inf for _ in sources]
        self._ready: list[deque[MergedLine]] = [deque() for _ in sources]
        self._done = [False for _ in sources]
        self._heap: list[tuple[float, int]] = []

    def lines(self, count: int) -> list[MergedLine]:
        """The next lines, fewer where there are no more."""
        self._fill([number for number in range(len(self._sources)) if not self._ready[number]])
        taken: list[MergedLine] = []
        while self._heap and len(taken) < count:
            number = abs(heapq.heappop(self._heap)[1])
            line = self._ready[number].popleft()
            taken.append(line)
            self.place[line.log] = line.offset if self._backwards else line.end
            if self._ready[number]:
                self._push(number)
            else:
                self._fill([number])
        return taken

    def _push(self, number: int) -> None:
        at = self._ready[number][0].at
        # the number turned too: lines of one moment come in the exact reverse of reading forwards
        heapq.heappush(self._heap, (-at, -number) if self._backwards else (at, number))

    def _fill(self, numbers: Sequence[int]) -> None:
        """Read on in these logs, until each has a line or no more."""
        empty = [number for number in numbers if not self._done[number]]
        while empty:
            answers = self._client.read_many([self._range(number) for number in empty])
            for number, answer in zip(empty, answers, strict=True):
                if isinstance(answer, FileChunk):
                    self._take(number, answer)
                else:
                    self._done[number] = True
            for number in empty:
                if self._ready[number]:
                    self._push(number)
            empty = [number for number in empty if not self._ready[number] and not self._done[number]]

    def _range(self, number: int) -> FileRange:
        source, limit = self._sources[number], self._bytes[number]
        self._bytes[number] = min(self._most, 2 * limit)
        to = self._read_to[source.name]
        start = max(0, to - limit) if self._backwards else to
        return FileRange(source.path, start, to - start if self._backwards else limit)

    def _take(self, number: int, chunk: FileChunk) -> None:
        source = self._sources[number]
        before = self._read_to[source.name]
        if chunk.size < before and not self._backwards:  # it was begun anew
            self._read_to[source.name] = self.place[source.name] = 0
            return
        first, data = _whole_lines(chunk, before, backwards=self._backwards, whole_only=self._whole_only)
        lines = self._timed(number, first, data)
        if self._backwards:
            known = next((place for place, line in enumerate(lines) if source.clock.read(line.text) is not None), 0)
            # lines before the first that says a time belong to one that is yet to be read
            lines = lines[known:] if first and source.is_timed else lines
            lines.reverse()
            self._read_to[source.name] = lines[-1].offset if lines else first
            self._done[number] = not lines or self._read_to[source.name] == 0
        else:
            self._read_to[source.name] = first + len(data)
            self._done[number] = not data or chunk.offset + len(chunk.data) >= chunk.size
        self._ready[number].extend(lines)

    def _timed(self, number: int, offset: int, data: bytes) -> list[MergedLine]:
        """The lines of a piece, each with its time, or that of the one above it."""
        source, at, stop = self._sources[number], self._at[number], offset + len(data)
        raws = data.split(b"\n")
        if raws and not raws[-1]:
            raws.pop()
        texts = [plain_line(raw) for raw in raws]
        times = [source.clock.read(text) for text in texts] if source.is_timed else [None for _ in texts]
        if self._backwards or (at == -math.inf and not offset):
            fallback = source.clock.oldest if not self._backwards or not offset else at
            at = next((when for when in times if when is not None), fallback)
        lines = []
        for raw, text, when in zip(raws, texts, times, strict=True):
            at = when if when is not None else at if source.is_timed else source.spread(offset)
            end = min(stop, offset + len(raw) + 1)  # the last may be half a line, without its end
            lines.append(MergedLine(at, source.name, offset, end, text))
            offset = end
        self._at[number] = (lines[0].at if self._backwards else at) if lines else at
        return lines


def _whole_lines(chunk: FileChunk, until: int, *, backwards: bool, whole_only: bool) -> tuple[int, bytes]:
    """Where the whole lines of a piece begin, and they; a line that is longer than the piece is cut."""
    data = chunk.data[: until - chunk.offset] if backwards else chunk.data
    if backwards:
        line = data.find(b"\n") + 1 if chunk.offset else 0
        return (chunk.offset + line, data[line:]) if line < len(data) else (chunk.offset, data)
    is_end = chunk.offset + len(data) >= chunk.size
    whole = data.rfind(b"\n") + 1
    if is_end and (whole_only or whole == len(data)):
        return chunk.offset, data[:whole]
    return chunk.offset, data if is_end else data[:whole] or data


def search_merged(
    client: RelayClient, attempt: str, sources: Sequence[LogSource], query: LogQuery, since: float | None = None
) -> Iterator[tuple[float, LogHit]]:
    """Search all of ``sources`` from ``since`` (epoch seconds) on; what is found comes in the order of time."""
    starts = place_of(client, sources, since) if since is not None else {}

    def hits(source: LogSource) -> Iterator[tuple[float, LogHit]]:
        start = place_line(client, source.path, starts.get(source.name, 0))
        for piece in search_log(client, attempt, source.name, query, start):
            yield from timed_hits(client, source, piece.hits)

    yield from heapq.merge(*(hits(source) for source in sources), key=lambda one: one[0])


def timed_hits(client: RelayClient, source: LogSource, hits: Sequence[LogHit]) -> list[tuple[float, LogHit]]:
    """When each of ``hits`` was written: by its own time, else by that of a line above it."""
    if not source.is_timed:
        return [(source.spread(hit.offset), hit) for hit in hits]
    times = [source.clock.read(hit.text) for hit in hits]
    unknown = [hit for hit, when in zip(hits, times, strict=True) if when is None]
    ranges = [FileRange(source.path, max(0, hit.offset - HEAD_BYTES), min(HEAD_BYTES, hit.offset)) for hit in unknown]
    above: dict[int, float] = {}
    for first in range(0, len(ranges), 64):
        for hit, answer in zip(unknown[first:], client.read_many(ranges[first : first + 64]), strict=False):
            lines = timed_lines(answer.data, answer.offset) if isinstance(answer, FileChunk) else []
            when = next((when for _, text in reversed(lines) if (when := source.clock.read(text)) is not None), None)
            if when is not None:
                above[hit.offset] = when
    told, at = [], source.clock.oldest
    for hit, when in zip(hits, times, strict=True):
        at = when if when is not None else above.get(hit.offset, at)
        told.append((at, hit))
    return told
