"""The way from this machine to the login node's sshd: a TCP forwarder that can fail on demand."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Iterator

LIBC = ctypes.CDLL(None, use_errno=True)
CHUNK_BYTES = 65536
ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: close by RST
TO_CLUSTER, FROM_CLUSTER = "to_cluster", "from_cluster"


@contextlib.contextmanager
def network_of(pid: int) -> Iterator[None]:
    """Let sockets made in this block belong to the network of process ``pid``; not across an await."""
    here, there = (os.open(f"/proc/{process}/ns/net", os.O_RDONLY) for process in ("self", pid))
    try:
        if LIBC.setns(there, 0):
            raise OSError(ctypes.get_errno(), "setns")
        yield
    finally:
        LIBC.setns(here, 0)
        os.close(here)
        os.close(there)


class Forwarder:
    """Forwards 127.0.0.1:``port`` to ``target``, an address in the network of process ``network_pid``.

    A fault is one of: reset (all connections end by RST), freeze (no byte moves, connections stay, new ones hang),
    refuse (reset, and new connections are refused). ``cut`` sets off a fault after a number of bytes.
    """

    def __init__(self, port: int, target: tuple[str, int], network_pid: int) -> None:
        self.port, self._target, self._network_pid = port, target, network_pid
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut: dict[str, tuple[int, str]] = {}
        self.bytes = {TO_CLUSTER: 0, FROM_CLUSTER: 0}
        self.cuts = 0

    async def start(self) -> None:
        """Accept connections; nothing happens if it does already."""
        if not self._server:
            self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, backlog=128)

    def fault(self, kind: str) -> None:
        """Fail in the given way at once."""
        if kind == "freeze":
            self._flowing.clear()
            return
        if kind == "refuse" and self._server:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
            writer.transport.abort()

    async def mend(self) -> None:
        """Forward again as if nothing had been, and forget faults yet to come."""
        self._cut.clear()
        self._flowing.set()
        await self.start()

    def cut(self, after: int, direction: str, fault: str) -> None:
        """Let exactly ``after`` more bytes pass in ``direction``, over all connections together, then fail."""
        self._cut[direction] = (self.bytes[direction] + after, fault)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        far_writer = None
        try:
            await self._flowing.wait()
            far_reader, far_writer = await self._connect()
            self._writers.add(far_writer)
            await asyncio.gather(
                self._pump(reader, far_writer, TO_CLUSTER), self._pump(far_reader, writer, FROM_CLUSTER)
            )
        except OSError:
            pass  # either end is gone, as tests want it
        finally:
            for one in filter(None, (writer, far_writer)):
                self._writers.discard(one)
                one.transport.abort() if one.is_closing() else one.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        with network_of(self._network_pid):
            # With the protocol named, asyncio turns Nagle's delay off.
            far = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        far.setblocking(False)
        await asyncio.get_running_loop().sock_connect(far, self._target)
        return await asyncio.open_connection(sock=far)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._flowing.wait()
            limit, fault = self._cut.get(direction, (None, ""))
            if limit is not None and self.bytes[direction] + len(data) >= limit:
                data = data[: limit - self.bytes[direction]]
            self.bytes[direction] += len(data)
            writer.write(data)
            await writer.drain()
            if limit is not None and self.bytes[direction] >= limit:
                self._cut.pop(direction, None)
                self.cuts += 1
                self.fault(fault)
                if fault != "freeze":
                    return
        writer.write_eof()
