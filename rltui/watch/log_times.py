"""Where in a log a moment is, by the times that its lines begin with; found by halving, whatever its size."""

from __future__ import annotations

import io
import re
import struct
import time
from collections.abc import Generator, Mapping
from datetime import datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from msgspec import Struct

from rltui.cluster.relay_types import FileChunk, FileRange, RelayError
from rltui.errors import UsageError
from rltui.watch.attempt_logs import CLOCK_WITHIN
from rltui.watch.text import plain_line

if TYPE_CHECKING:
    from rltui.cluster.relay_client import RelayClient

CHUNK_BYTES = 32 << 10
HEAD_BYTES = 512
"""Of a line, what its time is looked for in: colour codes may stand before it."""

DAY_S = 86400.0
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY_S, "w": 7 * DAY_S}
SKEW_S = 60.0
"""By how much a line may be newer than its file says to be."""

_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?!\d)(?:[.,](?P<fraction>\d+))?(?P<zone>Z|[+-]\d\d:?\d\d)?"
_FORMS = tuple(
    re.compile(form)
    for form in (
        rf"\b(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)[T ]{_CLOCK}",
        rf"\b(?P<month>\d\d)-(?P<day>\d\d) {_CLOCK}",  # vLLM, SGLang
        rf"\b[IWEF](?P<month>\d\d)(?P<day>\d\d) {_CLOCK}",  # glog
        rf"\b{_CLOCK}",
    )
)
_ZONE_FILE, _ZONE_BYTES = "/etc/localtime", 1 << 16
_HALF_YEAR_S = 182.0 * DAY_S
_NEVER = "\0no line has this\0"
"""A literal, which is looked for as fast as memory is read."""


class Place(Struct, frozen=True):
    """The start of a line: how many bytes are before it, and its number counted from 1."""

    offset: int = 0
    line: int = 1


class Clock(Struct, frozen=True):
    """What the times in a log mean.

    Attributes:
        zone: The cluster's.
        newest: When the log was last written, epoch seconds: years, and days, that lines do not say follow from it.
        oldest: Before which nothing was written.
    """

    zone: tzinfo
    newest: float
    oldest: float

    def read(self, text: str) -> float | None:
        """When a line was written, epoch seconds; None where it does not say."""
        for form in _FORMS:
            match = form.search(text, 0, CLOCK_WITHIN)
            if match is None:
                continue
            said = {name: value for name, value in match.groupdict().items() if value}
            zone, fraction = said.pop("zone", ""), float("0." + said.pop("fraction", "0"))
            try:
                fields = {name: int(value) for name, value in said.items()}
                return self._epoch(fields, _zone(zone) or self.zone) + fraction
            except (ValueError, OverflowError):
                return None
        return None

    def _epoch(self, fields: dict[str, int], zone: tzinfo) -> float:
        """The moment; a ValueError where it may be of any day, or is of none."""
        newest = datetime.fromtimestamp(self.newest, zone)
        known = {"year": newest.year, "month": newest.month, "day": newest.day, **fields}
        at = datetime(**known, tzinfo=zone)
        if "day" not in fields:
            if self.newest - self.oldest > DAY_S:
                raise ValueError("which day?")
            # a time of day that is ahead of the last write is of the day before
            return (at - timedelta(days=at.timestamp() > self.newest + SKEW_S)).timestamp()
        # over New Year: a date that is ahead of the last write is of the year before
        if "year" not in fields and at.timestamp() > self.newest + DAY_S:
            at = at.replace(year=at.year - 1)
        return at.timestamp()


def span_s(text: str) -> float | None:
    """Seconds of a span of time as typed: ``90m``, ``2h``, ``3d``, ``1w``; None where it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip().lower())
    return float(found[1]) * _UNITS_S[found[2]] if found else None


def moment(text: str, now: float, zone: tzinfo) -> float:
    """The moment that somebody means: a span before ``now``, or a date and time, of the cluster or of a named zone.

    Raises:
        UsageError: It cannot be read.
    """
    span = span_s(text)
    if span is not None:
        return now - span
    try:
        at = datetime.fromisoformat(re.sub(r"[Zz]\Z", "+00:00", text))  # Python reads the Z from 3.11 on
        return (at if at.tzinfo is not None else at.replace(tzinfo=zone)).timestamp()
    except ValueError:
        raise UsageError(f"{text!r} is no time.", "Write 90s, 10m, 2h, 1d, or 2026-11-24T08:00.") from None


def zone_of(client: RelayClient) -> tzinfo:
    """The time zone of a cluster's clock, with its changes to summer time and back where the cluster tells them."""
    now = time.time()
    asked = ["sh", "-c", 'date +%z; date -d "@$1" +%z', "sh", f"{now - _HALF_YEAR_S:.0f}"]
    then, before, *_ = (*client.run(asked, timeout_s=10).out.split(), "", "")
    try:
        rules = ZoneInfo.from_file(io.BytesIO(client.read(_ZONE_FILE, 0, _ZONE_BYTES).data))
    except (RelayError, ValueError, struct.error):
        return _zone(then) or timezone.utc
    # the account's TZ may say another zone than the machine's file
    told = (f"{datetime.fromtimestamp(at, rules):%z}" for at in (now, now - _HALF_YEAR_S))
    return rules if tuple(told) == (then, before) else _zone(then) or timezone.utc


def _zone(text: str) -> timezone | None:
    match = re.fullmatch(r"([+-])(\d\d):?(\d\d)", text)
    if match is None:
        return timezone.utc if text == "Z" else None
    minutes = int(match[2]) * 60 + int(match[3])
    return timezone(timedelta(minutes=-minutes if match[1] == "-" else minutes))


def place_since(client: RelayClient, path: str, since: float, clock: Clock) -> Place:
    """The first line of the log ``path`` that was written ``since`` (epoch seconds) or later.

    Lines without a time belong to the one before. Where nothing of a part says when it was written, more is given.

    Raises:
        UsageError: No line at its end says when it was written.
        RelayError: There is no such log, or the cluster is away.
    """
    end = client.tail(path, CHUNK_BYTES)
    if all(clock.read(text) is None for _, text in timed_lines(end.data, end.offset)):
        name = path.rpartition("/")[2]
        raise UsageError(f"The end of {name} does not say when its lines were written.", "Leave --since out.")
    offset = offsets_since(client, {path: (end.size, clock)}, since)[path]
    return place_line(client, path, offset)


def offsets_since(client: RelayClient, files: Mapping[str, tuple[int, Clock]], since: float) -> dict[str, int]:
    """Where in each of ``files`` (path → size and clock) the first line is that was written ``since`` or later.

    All are halved together, in one round trip a step: 1 GB is 15 of them.
    """
    searches = {path: _halving(size, clock, since) for path, (size, clock) in files.items()}
    wanted = {path: next(search) for path, search in searches.items()}
    found: dict[str, int] = {}
    while wanted:
        ranges = [FileRange(path, offset, 2 * CHUNK_BYTES) for path, offset in wanted.items()]
        answers = zip(list(wanted), client.read_many(ranges), strict=True)
        for path, answer in answers:
            at, is_found = _go_on(searches[path], answer.data if isinstance(answer, FileChunk) else b"")
            (found if is_found else wanted)[path] = at
        wanted = {path: at for path, at in wanted.items() if path not in found}
    return found


def _go_on(search: Generator[int, bytes, int], data: bytes) -> tuple[int, bool]:
    """From where a search wants to read next; or where it has found its line, and that it has."""
    try:
        return search.send(data), False
    except StopIteration as told:
        return told.value, True


def _halving(size: int, clock: Clock, since: float) -> Generator[int, bytes, int]:
    """Says from where on it wants to read, is sent what is there, and returns the offset."""
    low, high = 0, size
    while high - low > CHUNK_BYTES:
        middle = (low + high) // 2
        lines = timed_lines((yield middle), middle)
        at = next((when for _, text in lines if (when := clock.read(text)) is not None), None)
        low, high = (low, middle) if at is None or at >= since else (middle, high)
    for offset, text in timed_lines((yield low), low):
        when = clock.read(text)
        if when is not None and when >= since:
            return offset
    return high


def timed_lines(data: bytes, offset: int) -> list[tuple[int, str]]:
    """The beginnings of the whole lines of a piece that begins at ``offset``, each with where it begins."""
    at = data.find(b"\n") + 1 if offset else 0
    found = []
    for raw in data[at:].split(b"\n"):
        found.append((offset + at, plain_line(raw[:HEAD_BYTES])))
        at += len(raw) + 1
    return found


def place_line(client: RelayClient, path: str, offset: int) -> Place:
    """The line of the log ``path`` that begins at ``offset``, with its number, for which the log before it is read."""
    at, line = 0, 1
    while at < offset:
        passed = client.search(path, _NEVER, at, offset - at, 1)
        if passed.offset <= at:
            break
        at, line = passed.offset, line + passed.lines
    return Place(offset, line)
