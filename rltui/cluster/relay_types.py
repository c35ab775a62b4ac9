"""What the relay answers, typed."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from rltui.errors import ClusterError


class RelayError(ClusterError):
    """A request to a relay was refused, failed, or was not answered.

    Attributes:
        kind: One word for programs: ``missing``, ``denied``, ``exists``, ``not-a-file``, ``too-large``, ``full``,
            ``busy``, ``refused``, ``unreachable``, ``timeout``, ``failed``, ``bad-request`` from the relay;
            ``timeout`` also where no answer came; ``lost`` where the connection broke before the answer.
    """

    def __init__(self, kind: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.kind = kind


OUTCOME_UNKNOWN = frozenset({"lost", "timeout"})
"""Kinds after which a request may have been done or not; every other kind is an answer."""


class Hello(Struct, frozen=True):
    """Who and where a relay is."""

    version: int
    python: str
    host: str
    user: str
    pid: int
    home: str
    cpus: int
    time: float


class ProcessIdentity(Struct, frozen=True):
    """One process: pid and start time together name it on its host."""

    pid: int
    start_time: str
    host: str = ""
    """Empty: the relay's."""


class FileRange(Struct, frozen=True):
    """A wish for part of a file: ``limit`` bytes from ``offset``, or the last ``limit`` where that is None."""

    path: str
    offset: int | None
    limit: int


class FileChunk(Struct, frozen=True):
    """Part of a file, with what the file was when it was read."""

    data: bytes
    offset: int
    size: int
    inode: int
    mtime: float


class Found(Struct, frozen=True):
    """What a search of a piece of a file found.

    Attributes:
        hits: Lines, each by its number counted from the line that the search began at, its offset, and its bytes.
        offset: Where the search ended; the next goes on from there.
        lines: Line ends that it passed.
        size: Bytes of the file.
    """

    hits: tuple[tuple[int, int, bytes], ...]
    offset: int
    lines: int
    size: int


class RecordQuery(Struct, frozen=True, kw_only=True):
    """Which objects of a file of JSON lines are wanted."""

    hits: int
    """At most so many."""
    number: str = ""
    """The key whose number ranks them, the largest first; empty: the last ones of the file, the last first."""
    smallest: bool = False
    """Whether the smallest number comes first instead."""
    pattern: str = ""
    """A regular expression that their lines have; empty: any."""
    anchors: tuple[str, ...] = ()
    """Each such line has one of these, as it stands; none: nobody knows."""
    clip: int = 200
    """Characters of each text that are wanted."""


class Records(Struct, frozen=True):
    """What a piece of a file of JSON lines has of the wanted objects.

    Attributes:
        records: Objects with their texts cut, each by where its line begins and how many bytes that has; best first.
        offset: Where the piece ended; the next goes on from there.
        size: Bytes of the file.
        unread: Lines that would have been wanted and are no objects.
    """

    records: tuple[tuple[int, int, dict[str, Any]], ...]
    offset: int
    size: int
    unread: int = 0


class SmallFile(Struct, frozen=True):
    """One file of a collection; ``text`` is None where it is older than what was asked for."""

    path: str
    """Relative to the root of the collection."""
    text: str | None
    mtime: float
    size: int
    owner: str = ""
    """Who owns it; empty: the relay's user."""


class Collection(Struct, frozen=True):
    """Many small files, and the relay's clock when it had read them."""

    files: tuple[SmallFile, ...]
    truncated: bool
    time: float
    full: bool = False
    """Whether the disk that they are on has no room left."""
    next: int = 0
    """Where it is truncated, with which file a further request goes on."""


class Entry(Struct, frozen=True):
    """One entry of a directory."""

    name: str
    type: Literal["file", "dir", "link", "other"]
    size: int
    mtime: float


class HttpAnswer(Struct, frozen=True):
    """The answer of a server on the relay's loopback."""

    status: int
    body: bytes


class Completed(Struct, frozen=True):
    """A program that ran to its end; a negative ``rc`` is the signal that ended it."""

    rc: int
    out: str
    err: str
    truncated: bool = False
    """Whether output over the relay's cap was dropped."""
