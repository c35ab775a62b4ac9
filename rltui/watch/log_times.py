"""Where in a log a moment is, by the times that its lines begin with; found by halving, whatever its size."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.errors import UsageError
from rltui.watch.attempt_logs import CLOCK_WITHIN
from rltui.watch.text import plain_line

if TYPE_CHECKING:
    from rltui.cluster.relay_client import RelayClient

CHUNK_BYTES = 64 << 10
DAY_S = 86400.0
SKEW_S = 60.0
"""By how much a line may be newer than its file says to be."""

_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)\b"
_FORMS = tuple(
    re.compile(form)
    for form in (
        rf"\b(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)[T ]{_CLOCK}",
        rf"\b(?P<month>\d\d)-(?P<day>\d\d) {_CLOCK}",  # vLLM, SGLang
        rf"\b[IWEF](?P<month>\d\d)(?P<day>\d\d) {_CLOCK}",  # glog
        rf"\b{_CLOCK}",
    )
)
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

    zone: timezone
    newest: float
    oldest: float

    def read(self, text: str) -> float | None:
        """When a line was written, epoch seconds; None where it does not say."""
        for form in _FORMS:
            match = form.search(text, 0, CLOCK_WITHIN)
            if match is None:
                continue
            fields = {name: int(value) for name, value in match.groupdict().items()}
            try:
                return self._epoch(fields)
            except (ValueError, OverflowError):
                return None
        return None

    def _epoch(self, fields: dict[str, int]) -> float | None:
        newest = datetime.fromtimestamp(self.newest, self.zone)
        known = {"year": newest.year, "month": newest.month, "day": newest.day, **fields}
        at = datetime(**known, tzinfo=self.zone)
        if "day" not in fields:
            if self.newest - self.oldest > DAY_S:
                return None  # it may be of any day
            return (at - timedelta(days=at.timestamp() > self.newest + SKEW_S)).timestamp()
        if "year" not in fields and at.timestamp() > self.newest + DAY_S:
            at = at.replace(year=at.year - 1)
        return at.timestamp()


def moment(text: str, span_s: float | None, now: float, zone: timezone) -> float:
    """The moment that somebody means: a span before now, or a date and time of the cluster.

    Raises:
        UsageError: It cannot be read.
    """
    if span_s is not None:
        return now - span_s
    try:
        return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()
    except ValueError:
        raise UsageError(f"{text!r} is no time.", "Write 90s, 10m, 2h, 1d, or 2026-11-24T08:00.") from None


def zone_of(client: RelayClient) -> timezone:
    """The time zone of a cluster's clock."""
    said = client.run(["date", "+%z"], timeout_s=10).out.strip()
    match = re.fullmatch(r"([+-])(\d\d)(\d\d)", said)
    if match is None:
        return timezone.utc
    minutes = int(match[2]) * 60 + int(match[3])
    return timezone(timedelta(minutes=-minutes if match[1] == "-" else minutes))


def place_since(client: RelayClient, path: str, since: float, clock: Clock) -> Place:
    """The first line of the log ``path`` that was written ``since`` (epoch seconds) or later.

    Lines without a time belong to the one before. Where nothing of a part says when it was written, more is given.

    Raises:
        UsageError: No line at its end says when it was written.
        RelayError: There is no such log, or the cluster is away.
    """
    size = client.read(path, 0, 1).size
    if not any(clock.read(text) is not None for _, text in _lines(client, path, max(0, size - CHUNK_BYTES))):
        name = path.rpartition("/")[2]
        raise UsageError(f"The end of {name} does not say when its lines were written.", "Leave --since out.")
    low, high = 0, size
    while high - low > CHUNK_BYTES:
        middle = (low + high) // 2
        at = next((when for _, text in _lines(client, path, middle) if (when := clock.read(text)) is not None), None)
        low, high = (low, middle) if at is None or at >= since else (middle, high)
    for offset, text in _lines(client, path, low):
        when = clock.read(text)
        if when is not None and when >= since:
            return Place(offset, _line_at(client, path, offset))
    return Place(high, _line_at(client, path, high))


def _lines(client: RelayClient, path: str, offset: int) -> list[tuple[int, str]]:
    """Whole lines of a piece from ``offset`` on, each with where it begins."""
    data = client.read(path, offset, 2 * CHUNK_BYTES).data
    at = data.find(b"\n") + 1 if offset else 0
    found = []
    for raw in data[at:].split(b"\n"):
        found.append((offset + at, plain_line(raw)))
        at += len(raw) + 1
    return found


def _line_at(client: RelayClient, path: str, offset: int) -> int:
    at, line = 0, 1
    while at < offset:
        passed = client.search(path, _NEVER, at, offset - at, 1)
        if passed.offset <= at:
            break
        at, line = passed.offset, line + passed.lines
    return line
