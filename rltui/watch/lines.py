"""Files of lines that grow while they are read: only what is new is asked for, and half a line waits for its rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rltui.cluster.relay_types import Entry, FileChunk, FileRange, RelayError
from rltui.onnode import rundir
from rltui.watch.text import plain_value

if TYPE_CHECKING:
    from rltui.cluster.relay_client import RelayClient

T = TypeVar("T")

STEP_BYTES = 1 << 20
ROUNDS = 4
"""Steps of one file in one refresh: one that is far behind is caught up with by and by, at bounded cost."""

JUMP_BYTES = 8 << 20
"""A file of which only the end is wanted is left alone up to its end when it is this far behind."""

MAX_LINE_BYTES = 1 << 18


def tail_of(client: RelayClient, path: str, size: int) -> bytes:
    """The last ``size`` bytes of a file; none where it cannot be read."""
    try:
        return client.tail(path, size).data
    except RelayError:
        return b""


def entries_of(client: RelayClient, path: str) -> Sequence[Entry]:
    """What is in a folder; nothing where it cannot be listed, such as one that is not there yet.

    Raises:
        RelayError: The cluster is away.
    """
    try:
        return client.list(path)
    except RelayError as error:
        if error.kind in ("lost", "timeout"):
            raise
        return ()


class LineFollower:
    """Follows one file, through growth, truncation, replacement and disappearance.

    Args:
        path: The file.
        take: Is given each batch of new whole lines, without their line ends.
        first_bytes: Only the end is wanted: start this far from it in a file that is there already. None: all is.
        keep_tail: Of a line over ``MAX_LINE_BYTES``, whether the end is kept, or nothing.

    Attributes:
        line_end: Byte offset just behind the last whole line.
        problem: Why the file cannot be read; empty where it can, or is not there (yet).
        more: Whether the last step left something to read.
    """

    def __init__(
        self,
        path: str,
        take: Callable[[list[bytes]], None],
        *,
        first_bytes: int | None = None,
        keep_tail: bool = False,
    ) -> None:
        self.path = path
        self.line_end = 0
        self.problem = ""
        self.more = True
        self._take = take
        self._first_bytes = first_bytes
        self._keep_tail = keep_tail
        self._inode: int | None = None
        self._offset = 0
        self._torn = b""
        self._skipping = False

    def want(self) -> FileRange:
        """What to read next: the end of a file that is new here, else what came behind the last read."""
        if self._inode is None and self._first_bytes is not None:
            return FileRange(self.path, None, self._first_bytes)
        return FileRange(self.path, self._offset, STEP_BYTES)

    def feed(self, answer: FileChunk | RelayError) -> None:
        """Take the answer to ``want``."""
        self.more = False
        self.problem = ""
        if isinstance(answer, RelayError):
            if answer.kind == "missing":
                self._restart()
            else:
                self.problem = answer.message
        elif self._must_restart(answer):
            self._restart()
            self.more = True
        else:
            self._take_chunk(answer)

    def _must_restart(self, chunk: FileChunk) -> bool:
        """Whether another file has this name, or it was cut: what was asked for is then from the wrong place."""
        if self._inode is None:
            return False
        # Slurm truncates the output of a job that it requeues, unless JobFileAppend or --open-mode says otherwise
        far_behind = self._first_bytes is not None and chunk.size - self._offset > JUMP_BYTES
        return chunk.inode != self._inode or chunk.size < self._offset or far_behind

    def _take_chunk(self, chunk: FileChunk) -> None:
        if self._inode is None:
            self._inode, self._skipping = chunk.inode, chunk.offset > 0
        self._offset = chunk.offset + len(chunk.data)
        self.more = bool(chunk.data) and self._offset < chunk.size
        lines = self._split(chunk.data)
        if lines:
            self.line_end = self._offset - len(self._torn)
            self._take(lines)

    def _restart(self) -> None:
        self._inode = None
        self._offset = 0
        self._torn = b""
        self._skipping = False

    def _split(self, data: bytes) -> list[bytes]:
        lines = (self._torn + data).split(b"\n")
        self._torn = lines.pop()
        if self._skipping and lines:
            del lines[0]
            self._skipping = False
        if self._skipping:
            self._torn = b""
        elif len(self._torn) > MAX_LINE_BYTES:
            self._skipping = not self._keep_tail
            self._torn = self._torn[-MAX_LINE_BYTES:] if self._keep_tail else b""
        return lines


def follow(client: RelayClient, followers: Sequence[LineFollower]) -> None:
    """Feed ``followers`` with what is new, in one round trip for all of them, up to ``ROUNDS`` for those far behind.

    Raises:
        ClusterError: The cluster cannot be reached; what cannot be read of one file is that follower's ``problem``.
    """
    waiting = list(followers)
    for _ in range(ROUNDS):
        if not waiting:
            return
        for follower, answer in zip(waiting, client.read_many([one.want() for one in waiting]), strict=True):
            follower.feed(answer)
        waiting = [follower for follower in waiting if follower.more]


class AttemptLines:
    """Follows the file of one name through a run's attempts: each to its end before the one that began next.

    Args:
        run_path: The run's directory.
        name: The file's name in each attempt's directory.
        take: Is given the attempt's number and a batch of new lines.
    """

    def __init__(self, run_path: str, name: str, take: Callable[[int, list[bytes]], None]) -> None:
        self._run_path = run_path
        self._name = name
        self._take = take
        self._followers: dict[int, LineFollower] = {}
        self._ended: set[int] = set()
        self._follower: LineFollower | None = None

    @property
    def behind(self) -> bool:
        """Whether the last reading has left lines that are there already."""
        return self._follower is not None and self._follower.more and not self._follower.problem

    def newest(self, client: RelayClient, attempts: Sequence[int]) -> list[LineFollower]:
        """Read the files of all ``attempts`` but the last, and return the follower of the last, if there is one.

        They come in the order in which they began, the one that the run is at as the last.

        Where an earlier file is too far behind to be caught up with at once, it is that one's follower.
        """
        for number in attempts:
            is_last = number == attempts[-1]
            if number in self._ended and not is_last:
                continue
            if number not in self._followers:
                self._followers[number] = self._open(number)
            self._follower = self._followers[number]
            if is_last:
                break
            follow(client, [self._follower])
            if self._follower.more:
                break
            self._ended.add(number)
        return [self._follower] if self._follower is not None else []

    def _open(self, number: int) -> LineFollower:
        path = f"{rundir.attempt_folder(self._run_path, number)}/{self._name}"
        return LineFollower(path, lambda lines: self._take(number, lines))


def decode(data: bytes | str, kind: type[T], *, strict: bool = True, as_it_is: bool = False) -> T | None:
    """Return the JSON ``data`` as a ``kind``, its strings made plain, or None where it is something else.

    Holes of NUL bytes (a network file system after a crash) and bytes that are not UTF-8 are tolerated, as are NaN and
    Infinity, which trainers write.

    Args:
        data: The JSON text.
        kind: What it should be.
        strict: Whether numbers in strings are refused.
        as_it_is: Leave strings as they are; the caller makes them plain.
    """
    value = parse_object(data)
    if value is None:
        return None
    try:
        return msgspec.convert(value if as_it_is else plain_value(value), kind, strict=strict)
    except msgspec.ValidationError:
        return None


def parse_object(data: bytes | str) -> dict[str, Any] | None:
    """Return the JSON object in ``data``, or None; see ``decode`` for what is tolerated."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    try:
        value = json.loads(text.strip("\0 \r\n\t"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
