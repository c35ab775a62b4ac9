"""Searching a whole log of any size where it lies: only lines that were found come over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.watch.text import plain_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rltui.cluster.relay_client import RelayClient

PIECE_BYTES = 64 << 20
"""Bytes that one request looks at; between two, a search can be left and says how far it is."""

HITS_AT_ONCE = 1000


_GLOG, _RAYS = r"(?:^|[ \[]){}\d{{4}} \d\d:\d\d", r",\d+ {} \d+ \d+\]"
_ERROR = (
    r"\b(?:ERROR|CRITICAL|FATAL)\b",
    r"\b[A-Z]\w*(?:Error|Exception)\b",
    _GLOG.format("[EF]"),
    _RAYS.format("[EF]"),
)
_WARNING = (r"\bWARN(?:ING)?\b", r"\b\w+Warning\b", _GLOG.format("W"), _RAYS.format("W"))
LEVELS = {"error": "|".join(_ERROR), "warning": "|".join((*_ERROR, *_WARNING))}
"""How Python's logging, exceptions, glog (torch's C++, NCCL's watchdog) and Ray's own processes word that a line is at
least so serious."""


def pattern_of(grep: str | None = None, level: str | None = None, rank: int | None = None) -> str | None:
    """One pattern for lines that have all of it; None where nothing is wanted.

    Args:
        grep: A regular expression.
        level: One of ``LEVELS``.
        rank: The rank that a line names as its own: ``[rank3]:``, ``[Rank 3]``, ``rank=3``, ``RANK 3``.
    """
    parts = [grep] if grep is not None else []
    if level:
        parts.append(LEVELS[level])
    if rank is not None:
        parts.append(rf"(?i:\brank)[ =:]?{rank}\b")
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else "^" + "".join(f"(?=.*(?:{part}))" for part in parts)


class LogHit(Struct, frozen=True):
    """A line that was found: its log, its number counted from 1, and its text, free of control characters."""

    log: str
    line: int
    text: str


class Searched(Struct, frozen=True):
    """What a piece of a log brought, and how far the search is."""

    hits: tuple[LogHit, ...]
    offset: int
    size: int


def search_log(client: RelayClient, attempt: str, name: str, pattern: str) -> Iterator[Searched]:
    """Search the log ``name`` (a path below ``attempt``) from its start to where it ends now, piece by piece.

    Raises:
        RelayError: There is no such log, the pattern cannot be read, or the cluster is away.
    """
    offset, line, end = 0, 1, None
    while end is None or offset < end:
        limit = PIECE_BYTES if end is None else min(PIECE_BYTES, end - offset)
        found = client.search(f"{attempt}/{name}", pattern, offset, limit, HITS_AT_ONCE)
        end = found.size if end is None else end
        hits = tuple(LogHit(name, line + number, plain_line(text)) for number, text in found.hits)
        yield Searched(hits, found.offset, end)
        if found.offset <= offset:
            return
        offset, line = found.offset, line + found.lines
