"""The client of the relay: typed requests to one cluster, over one connection that is opened when first needed."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from rltui.cluster.relay_connection import Connection, Ticket
from rltui.cluster.relay_program import relay_program
from rltui.cluster.relay_types import (
    Collection,
    Completed,
    Entry,
    FileChunk,
    FileRange,
    Found,
    Hello,
    HttpAnswer,
    ProcessIdentity,
    RecordQuery,
    Records,
    RelayError,
    SmallFile,
)
from rltui.cluster.transport import NeedsAttentionError, Transport
from rltui.errors import ClusterError
from rltui.onnode import rundir
from rltui.onnode.relay_request import MIB, pack, unpack
from rltui.threads import backed_off_s

SLACK_S = 5.0
"""What an answer may take on top of the time that the relay itself was given."""

MAX_DATA = 64 * MIB
PIECE_BYTES = 4 * MIB
"""What is asked for at a time of a file that is read whole."""


def reconnect_delay_s(failures: int) -> float:
    """Seconds before the next try after ``failures`` failed ones in a row: 1, 2, 4 … 30, to spare login nodes."""
    return backed_off_s(1.0, max(0, failures - 1), 30.0)


def pieces(client: RelayClient, path: str, offset: int = 0) -> Iterator[FileChunk]:
    """A regular file from ``offset`` to its end, a piece at a time, as far as it reaches when that is read."""
    while True:
        chunk = client.read(path, offset, PIECE_BYTES)
        yield chunk
        offset = chunk.offset + len(chunk.data)
        if not chunk.data or offset >= chunk.size:
            return


class RelayClient:
    """Asks the relay of one cluster; may be used by any number of threads.

    A connection that breaks is opened again by the next request. A request that was in flight is sent again, once,
    only where doing it twice is the same as doing it once; any other raises ``RelayError`` of kind ``lost``.

    Where connecting failed, requests fail with the same error until a delay is over; a ``NeedsAttentionError`` stays
    until ``close`` is called, which is how the user's acting is told to the client.

    All methods raise ``RelayError`` where the relay refuses, fails, or does not answer in time, and ``ClusterError``
    where the cluster cannot be reached.

    Args:
        transport: The way to the cluster.
        timeout_s: Seconds for an answer to a request on files.
        open_timeout_s: Seconds for the first answer of a new relay.

    Attributes:
        slurm_cluster: Of the Slurm clusters that its host's tools reach, the one that is meant; empty: the host's own.
        trusted: What a server beyond the loopback wants to see, by its URL; None: that may not be asked.
    """

    def __init__(self, transport: Transport, *, timeout_s: float = 15.0, open_timeout_s: float = 30.0) -> None:
        self._transport = transport
        self._timeout_s = timeout_s
        self._open_timeout_s = open_timeout_s
        self._opening = threading.Lock()
        self._connection: Connection | None = None
        self._failures = 0
        self._failure: ClusterError | None = None
        self._retry_at = 0.0
        self.trusted: Callable[[str], Mapping[str, str] | None] | None = None
        self._owners: dict[str, str] = {}
        self.slurm_cluster = ""

    @property
    def place(self) -> str:
        """Where the relay is, in words for messages."""
        return self._transport.place

    def hello(self) -> Hello:
        """Who and where the relay is, by its clock."""
        return msgspec.convert(self._ask("hello", {}), Hello)

    def confine(self, folder: str, owner: str) -> None:
        """Read only files of ``owner`` below ``folder`` from now on: his links may lead to the reader's own."""
        self._owners[folder] = owner

    def owner_of(self, path: str) -> str:
        """Whose folder ``path`` is in, as ``confine`` was told; empty: nobody else's."""
        while path and path not in self._owners:
            path = path.rpartition("/")[0]
        return self._owners.get(path, "")

    def read(self, path: str, offset: int = 0, limit: int = 8 * MIB) -> FileChunk:
        """Read at most ``limit`` bytes (the relay's cap is 8 MiB) of a regular file from ``offset``."""
        return _chunk(self._ask("read", {"path": path, "offset": offset, "limit": limit}))

    def tail(self, path: str, limit: int) -> FileChunk:
        """Read the last ``limit`` bytes of a regular file."""
        return _chunk(self._ask("tail", {"path": path, "bytes": limit}))

    def read_many(self, ranges: Sequence[FileRange]) -> tuple[FileChunk | RelayError, ...]:
        """Read parts of many files in one round trip; each is a chunk, or the error that says why not."""
        try:
            return self._read_many(ranges)
        except RelayError as error:
            if error.kind != "lost":
                raise
            return self._read_many(ranges)

    def search(
        self,
        path: str,
        pattern: str,
        offset: int,
        limit: int,
        hits: int,
        anchors: Sequence[str] = (),
        *,
        newest: bool = False,
    ) -> Found:
        """Lines of a regular file in which the regular expression ``pattern`` is found, on the cluster's side.

        Args:
            path: The file.
            pattern: As Python's ``re`` has it; a line is searched alone.
            offset: Where to begin: the start of a line.
            limit: Bytes to look at, about.
            hits: Lines to find at most.
            anchors: Every line that the pattern finds has one of these, as it stands; none: nobody knows.
            newest: Of more than ``hits`` lines the last ones are found, and all of ``limit`` is looked at.
        """
        fields = {"path": path, "pattern": pattern, "offset": offset, "limit": limit, "hits": hits, "newest": newest}
        fields |= {"anchors": list(anchors)} if anchors else {}
        answer = self._ask("search", fields)
        found = tuple((number, at, unpack(data, packed, MAX_DATA)) for number, at, data, packed in answer["hits"])
        return Found(found, answer["offset"], answer["lines"], answer["size"])

    def records(self, path: str, offset: int, limit: int, wanted: RecordQuery) -> Records:
        """The newest, largest or smallest objects of a piece of a file of JSON lines, chosen on the cluster's side.

        Args:
            path: The file.
            offset: Where to begin: the start of a line.
            limit: Bytes to look at, about.
            wanted: Which objects, and how much of their texts.
        """
        fields = {"path": path, "offset": offset, "limit": limit, **msgspec.to_builtins(wanted)}
        return msgspec.convert(self._ask("records", fields), Records)

    def collect(self, root: str, names: Sequence[str], limit: int = MIB) -> tuple[SmallFile, ...]:
        """Read many small text files at once; ones that vanish or may not be read are left out.

        Args:
            root: The directory below which they are.
            names: Patterns relative to it, such as ``*/run.json``; ``*`` does not match a leading dot.
            limit: Bytes of each file that are read, at most 1 MiB.
        """
        return self.collect_since(root, names, limit, 0.0).files

    def collect_since(self, root: str, names: Sequence[str], limit: int, since: float) -> Collection:
        """As ``collect``, where files last changed before ``since`` (by their own times) come without text."""
        fields = {"root": root, "names": list(names), "limit": limit, "since": since}
        piece = msgspec.convert(self._ask("collect", fields), Collection)
        files = [*piece.files]
        while piece.truncated:
            piece = msgspec.convert(self._ask("collect", {**fields, "first": piece.next}), Collection)
            files += piece.files
        return msgspec.structs.replace(piece, files=tuple(files))

    def disk_time(self, folder: str) -> float:
        """Epoch seconds by the clock of the disk that ``folder`` is on: by it the ages of its files are counted."""
        return self.collect_since(folder, [rundir.STAGE], 1, 0.0).time

    def put(self, path: str, data: bytes, mode: int | None = None, exclusive: bool = False) -> None:
        """Write a file of at most 16 MiB in one step; its directory must be there, and say who else may read it.

        ``exclusive``: kind ``exists`` where the path is taken; a lost connection then leaves the outcome unknown.
        """
        content, packed = pack(data)
        fields: dict[str, Any] = {"path": path, "data": content, "packed": packed, "exclusive": exclusive}
        fields |= {} if mode is None else {"mode": mode}
        self._ask("put", fields, idempotent=not exclusive)

    def alive(self, processes: Sequence[ProcessIdentity]) -> tuple[bool | None, ...]:
        """Whether each process still runs; None for one of another host than the relay's, which cannot tell."""
        answer = self._ask("alive", {"processes": [msgspec.to_builtins(process) for process in processes]})
        return tuple(None if one is None else bool(one) for one in answer["alive"])

    def signal(self, pid: int, start_time: str, number: int) -> bool:
        """Send signal ``number`` to exactly that process; False where it is gone. Never sent twice."""
        fields = {"pid": pid, "start_time": start_time, "signal": number}
        return bool(self._ask("signal", fields, idempotent=False)["sent"])

    def http(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout_s: float = 5.0,
    ) -> HttpAnswer:
        """Ask a server on the loopback of the relay's machine, or the trusted one; redirects are not followed."""
        known = self.trusted(url) if self.trusted is not None else None
        told = {**(known or {}), **(headers or {})}
        fields: dict[str, Any] = {"url": url, "method": method, "headers": told, "timeout_s": timeout_s}
        fields |= {"beyond_loopback": True} if known is not None else {}
        fields["body"] = body.decode("utf-8", "surrogateescape")
        answer = self._ask("http", fields, timeout_s=timeout_s + SLACK_S, idempotent=method in ("GET", "HEAD"))
        return HttpAnswer(answer["status"], unpack(answer["body"], answer["packed"], MAX_DATA))

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        idempotent: bool = False,
        limit: int = 0,
    ) -> Completed:
        """Run a program to its end, in the home directory; what stays in its process group is ended with it.

        Args:
            argv: Program and arguments; no shell is involved.
            stdin: Its standard input.
            env: Variables added to those of the relay.
            timeout_s: When it is ended; the error is of kind ``timeout``.
            idempotent: Whether it may be run again where the connection broke.
            limit: Bytes of its output that are wanted where 4 MiB may not be enough, at most 16 MiB.
        """
        fields: dict[str, Any] = {"argv": list(argv), "env": dict(env or {}), "timeout_s": timeout_s}
        fields["input"] = stdin.decode("utf-8", "surrogateescape")
        fields |= {"limit": limit} if limit else {}
        answer = self._ask("run", fields, timeout_s=timeout_s + SLACK_S, idempotent=idempotent)
        if limit:
            answer["out"] = unpack(answer["data"], answer["packed"], MAX_DATA).decode("utf-8", "surrogateescape")
        return msgspec.convert(answer, Completed)

    def list(self, path: str) -> tuple[Entry, ...]:
        """List a directory by name; links are not followed, and what is over 20 000 entries is left out."""
        return msgspec.convert(self._ask("list", {"path": path})["entries"], tuple[Entry, ...])

    @property
    def needs_attention(self) -> bool:
        """Whether a person has to act, and then ``close`` be called, before the cluster is asked again."""
        return isinstance(self._failure, NeedsAttentionError)

    def close(self) -> None:
        """End the relay; the next request opens a new one at once."""
        connection, self._connection, self._failure, self._failures = self._connection, None, None, 0
        if connection is not None:
            connection.close()

    def _ask(
        self, op: str, fields: dict[str, Any], timeout_s: float | None = None, idempotent: bool = True
    ) -> dict[str, Any]:
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        fields = self._of_owner(fields)
        connection = self._connected()
        try:
            return connection.finish(connection.start(op, fields, timeout_s))
        except RelayError as error:
            if error.kind != "lost" or not idempotent:
                raise
        connection = self._connected()
        return connection.finish(connection.start(op, fields, timeout_s))

    def _of_owner(self, fields: dict[str, Any]) -> dict[str, Any]:
        owner = self.owner_of(fields.get("path") or fields.get("root") or "") if self._owners else ""
        return {**fields, "owner": owner} if owner else fields

    def _read_many(self, ranges: Sequence[FileRange]) -> tuple[FileChunk | RelayError, ...]:
        connection = self._connected()
        asked = [_request(one) for one in ranges]
        tickets = [connection.start(op, self._of_owner(fields), self._timeout_s) for op, fields in asked]
        return tuple(_chunk_or_error(connection, ticket) for ticket in tickets)

    def _connected(self) -> Connection:
        # with a deadline: whoever connects may wait for a person
        if not self._opening.acquire(timeout=self._open_timeout_s):
            raise RelayError("timeout", f"The connection to {self.place} is still being opened.", "Wait, or close it.")
        try:
            if self._connection is not None and not self._connection.lost:
                return self._connection
            if self._connection is not None:
                self._connection.abandon()
                self._connection = None
            if self._failure is not None and time.monotonic() < self._retry_at:
                # one error is raised again and again here, and each raise would lengthen its traceback
                raise self._failure.with_traceback(None)
            try:
                self._connection = self._open()
            except ClusterError as error:
                self._failures += 1
                # what only a person can settle is tried again when the client was closed, not by itself
                delay_s = math.inf if isinstance(error, NeedsAttentionError) else reconnect_delay_s(self._failures)
                self._failure, self._retry_at = error, time.monotonic() + delay_s
                raise
            self._failure, self._failures = None, 0
            return self._connection
        finally:
            self._opening.release()

    def _open(self) -> Connection:
        stream = self._transport.open()
        try:
            connection = Connection(stream, relay_program(), self.place, self._open_timeout_s)
            connection.finish(connection.start("hello", {}, self._open_timeout_s))
        except RelayError as error:
            why = f"The relay on {self.place} did not start. {error.message}"
            hint = "It needs python3, 3.8 or newer, and a login shell that starts programs without asking."
            if error.kind == "lost" and stream.was_cut():
                why = f"The connection to {self.place} ended before its relay had started."
                hint = "The network or the machine there ended it; the next request connects anew."
            threading.Thread(target=stream.close, daemon=True).start()
            raise RelayError(error.kind, why, hint) from error
        return connection


def _request(wanted: FileRange) -> tuple[str, dict[str, Any]]:
    if wanted.offset is None:
        return "tail", {"path": wanted.path, "bytes": wanted.limit}
    return "read", {"path": wanted.path, "offset": wanted.offset, "limit": wanted.limit}


def _chunk(answer: dict[str, Any]) -> FileChunk:
    data = unpack(answer["data"], answer["packed"], MAX_DATA)
    return FileChunk(data, answer["offset"], answer["size"], answer["inode"], answer["mtime"])


def _chunk_or_error(connection: Connection, ticket: Ticket) -> FileChunk | RelayError:
    try:
        return _chunk(connection.finish(ticket))
    except RelayError as error:
        if error.kind == "lost":
            raise
        return error
