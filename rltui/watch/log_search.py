"""Searching a whole log of any size where it lies: only lines that were found come over the wire."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timezone

from msgspec import Struct, structs

from rltui.cluster.relay_client import RelayClient
from rltui.errors import UsageError
from rltui.watch.log_times import Place, moment
from rltui.watch.owners import ROLE_LETTERS, ROLE_NAMES
from rltui.watch.text import checked_pattern, is_literal, plain_line

PIECE_BYTES = 64 << 20
"""Bytes that one request looks at; between two, a search can be left and says how far it is."""

HITS_AT_ONCE = 1000

NEWEST_HITS = 10_000
"""Where only the newest hits are wanted, so many: as many as the relay gives at once. Nobody steps through more."""

_GLOG, _RAYS = r"(?:^|[ \[]){}\d{{4}} \d\d:\d\d", r",\d+ {} \d+ \d+\].*\.cc:"
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

_ERROR_ANCHORS = ("ERROR", "CRITICAL", "FATAL", "Error", "Exception", ".cc:", "E0", "E1", "F0", "F1")
_WARNING_ANCHORS = ("WARN", "Warning", "W0", "W1")
ANCHORS = {"error": _ERROR_ANCHORS, "warning": (*_ERROR_ANCHORS, *_WARNING_ANCHORS)}
"""Each line of a level has one of these: glog's months begin with 0 or 1. None is of letters that lines are full of."""

ROLES = {
    name: tuple(part for part, letter in ROLE_LETTERS if ROLE_NAMES[letter] == name) for name in ROLE_NAMES.values()
}
"""Parts of the names of processes, in lower case, by role."""

ROLES["engine"] += ("worker_tp", "worker_dp", "apiserver")  # vLLM's own


class LogQuery(Struct, frozen=True):
    """What lines are meant when a log is searched."""

    pattern: str
    """A regular expression that they have; empty: no line is meant."""
    anchors: tuple[str, ...] = ()
    """Each of them has one of these; none: nobody knows."""
    words: str = ""
    """What to point out in them."""
    text: str = ""
    """As it was typed."""
    since: str = ""
    """Only lines written since: a span before now, or a date and time of the cluster; empty: all."""
    node: str = ""
    """Only of this node's logs; empty: of those that are shown."""

    @property
    def is_limited(self) -> bool:
        """Whether not every line with the pattern is meant."""
        return bool(self.since or self.node)


def query_of(
    grep: str | None = None, level: str | None = None, rank: int | None = None, role: str | None = None
) -> LogQuery | None:
    """What lines that have all of it have in common; None where nothing is wanted.

    Args:
        grep: A regular expression.
        level: One of ``LEVELS``.
        rank: The rank that a line names as its own: ``[rank3]:``, ``[Rank 3]``, ``rank=3``, ``RANK 3``.
        role: One of ``ROLES``: what Ray's or vLLM's prefix names, such as ``(Learner pid=77)``.

    Raises:
        UsageError: The expression cannot be read.
    """
    parts = [grep] if grep is not None else []
    if level:
        parts.append(LEVELS[level])
    if rank is not None:
        parts.append(rf"(?i:\brank)[ =:]?{rank}\b")
    if role:
        parts.append(rf"(?i:\([^()]*(?:{'|'.join(ROLES[role])})[^()]*\bpid=)")
    if not parts:
        return None
    pattern = parts[0] if len(parts) == 1 else "^" + "".join(f"(?=.*(?:{part}))" for part in parts)
    return LogQuery(checked_pattern(pattern), _anchors(grep, level, role))


def _anchors(grep: str | None, level: str | None, role: str | None) -> tuple[str, ...]:
    """What each such line has one of, as it stands; none where only a pattern can tell."""
    if grep and is_literal(grep):
        return (grep,)
    return ANCHORS[level] if level else ("pid=",) if role else ()


def read_query(text: str) -> LogQuery:
    """Read ``since:10m node:n1 level:error rank:3 role:engine words`` or, at the end, ``re:REGEX``.

    Plain words count whatever their case. Where nothing but ``since:`` or ``node:`` is typed, every line is meant.

    Raises:
        UsageError: It cannot be read.
    """
    chosen: dict[str, str] = {}
    rest = text.strip()
    while (match := _FILTER.match(rest)) is not None:
        chosen[match[1]] = match[2]
        rest = rest[match.end() :].lstrip()
    words = "" if rest.startswith("re:") else rest
    grep = rest[3:] if rest.startswith("re:") else f"(?i:{re.escape(rest)})" if rest else None
    for name, known in (("level", LEVELS), ("role", ROLES)):
        if chosen.get(name, next(iter(known))) not in known:
            raise UsageError(f"There is no {name} {chosen[name]!r}.", f"Those there are: {', '.join(known)}.")
    rank = chosen.get("rank")
    if rank is not None and not rank.isdecimal():
        raise UsageError(f"{rank!r} is no rank.", "A number: rank:3")
    since, node = chosen.get("since", ""), chosen.get("node", "")
    if since:
        moment(since, 0.0, timezone.utc)
    query = query_of(grep, chosen.get("level"), int(rank) if rank else None, chosen.get("role"))
    query = query or LogQuery("^" if since or node else "")
    return structs.replace(query, words=words, text=text, since=since, node=node)


_FILTER = re.compile(r"(level|rank|role|since|node):(\S*)(?:\s|$)")


class LogHit(Struct, frozen=True):
    """A line that was found: its log, its number counted from 1, where it begins, and its harmless text."""

    log: str
    line: int
    offset: int
    text: str


class Searched(Struct, frozen=True):
    """What a piece of a log brought, and how far the search is."""

    hits: tuple[LogHit, ...]
    offset: int
    size: int
    times: tuple[float, ...] = ()
    """When each hit was written, epoch seconds; none: they come in their order."""


def search_log(
    client: RelayClient, attempt: str, name: str, query: LogQuery, start: Place | None = None, *, newest: bool = False
) -> Iterator[Searched]:
    """Search the log ``name`` (a path below ``attempt``) from ``start`` to where it ends now, piece by piece.

    Args:
        client: The relay.
        attempt: The attempt's folder.
        name: The log.
        query: What lines are meant.
        start: Where to begin; None: at its start.
        newest: Of a piece with more than ``NEWEST_HITS`` only the last ones are wanted. A word that is in each of ten
            million lines would else take minutes to send.

    Raises:
        RelayError: There is no such log, the pattern cannot be read, or the cluster is away.
    """
    offset, line = (start.offset, start.line) if start is not None else (0, 1)
    end: int | None = None
    most = NEWEST_HITS if newest else HITS_AT_ONCE
    while end is None or offset < end:
        limit = PIECE_BYTES if end is None else min(PIECE_BYTES, end - offset)
        found = client.search(f"{attempt}/{name}", query.pattern, offset, limit, most, query.anchors, newest=newest)
        end = found.size if end is None else end
        hits = tuple(LogHit(name, line + number, at, plain_line(text)) for number, at, text in found.hits)
        yield Searched(hits, found.offset, end)
        if found.offset <= offset:
            return
        offset, line = found.offset, line + found.lines
