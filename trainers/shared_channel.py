"""A channel between a learner rank and the engine worker on the same card: the memory itself is shared.

NCCL refuses two ranks on one card, and between two processes of one card nothing has to travel: the learner copies
each piece of a bucket into a segment that both can address, the worker copies it out and says so. The segment is CUDA
memory, opened by its IPC handle, where there is a card, and memory of the host where there is none; everything else is
the same. A socket of the node carries the words; its end is the other's end, so nobody waits for a process that died.
"""

from __future__ import annotations

import base64
import json
import mmap
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from trainers.weight_channel import WeightTransferError, nothing

SEGMENT_BYTES = 2**28
"""Largest segment: it is there besides the bucket, and copies within a card are quick."""

SMALLEST_SEGMENT_BYTES = 2**16

_SEGMENT, _PIECE, _TAKEN = b"S", b"P", b"A"
_HEAD = struct.Struct("!cQ")
_POLL_S = 0.02


class SharedChannel:
    """One end of the channel; opening it blocks until the other end is there.

    Args:
        place: Name of the socket, which nobody could guess.
        is_sender: Whether this is the learner's end.
        owner: Who this is in errors, such as ``engine 0``.
        timeout_s: How long to wait for the other end, and for each piece.

    Attributes:
        name: Owner, for errors.
        device: Where tensors to broadcast must be.
        route: In words, how weights travel.
        keeps_tensors: False: what ``begin`` was given may change as soon as it returns.

    Raises:
        WeightTransferError: The other end did not come in time.
    """

    keeps_tensors = False

    def __init__(self, place: str, is_sender: bool, owner: str, timeout_s: float) -> None:
        has_card = torch.cuda.is_available()
        self.route = "CUDA IPC, within each card" if has_card else "shared memory of the host: there is no card"
        self.name = f"{owner} (on a shared {'card' if has_card else 'slot'})"
        self.device = torch.device("cuda", torch.cuda.current_device()) if has_card else torch.device("cpu")
        self._is_sender, self._timeout_s = is_sender, timeout_s
        self._other = "the engine" if is_sender else "the learner"
        self._segment: Segment | None = None
        self._is_given = False
        # abstract (unix(7)): a killed process leaves no file, and no folder's path exceeds the 108 bytes of a name
        self._socket: socket.socket | None = self._meet(f"\0rltui-weights-{place}")
        self._socket.settimeout(timeout_s)

    def broadcast(self, tensor: torch.Tensor, what: str) -> None:
        """Send ``tensor`` (learner) or overwrite it by what the learner sends (worker); blocks until it is done.

        Args:
            tensor: Contiguous, on ``device``, of the same size at both ends.
            what: What travels, for the error.

        Raises:
            WeightTransferError: The other end did not take part in time, or is gone.
        """
        raw = tensor.view(-1).view(torch.uint8)
        try:
            for piece in raw.split(SEGMENT_BYTES) if raw.numel() else ():
                if self._is_sender:
                    self._give(piece)
                else:
                    self._take(piece)
            self._await_taken()
        except (OSError, ValueError) as error:
            self._fail(what, error)

    def begin(self, tensor: torch.Tensor, what: str) -> Callable[[], None]:
        """Start ``broadcast``, for the learner: the last piece lies there; what is returned waits for its taking.

        Raises:
            WeightTransferError: As ``broadcast``; so does what is returned.
        """
        raw = tensor.view(-1).view(torch.uint8)

        def finish() -> None:
            try:
                self._await_taken()
            except (OSError, ValueError) as error:
                self._fail(what, error)

        try:
            for piece in raw.split(SEGMENT_BYTES) if raw.numel() else ():
                self._give(piece)
        except (OSError, ValueError) as error:
            self._fail(what, error)
        return finish

    def begin_integers(self, values: Sequence[int], what: str) -> Callable[[], None]:
        """Send ``values``; for the learner only, who has to wait for nothing then."""
        self.broadcast_integers(values, what)
        return nothing

    def broadcast_integers(self, values: Sequence[int], what: str) -> list[int]:
        """Return the learner's ``values`` at both ends; the worker gives as many of any. Otherwise as ``broadcast``."""
        form = struct.Struct(f"!{len(values)}q")
        try:
            if self._is_sender:
                self._open().sendall(form.pack(*values))
                return list(values)
            return list(form.unpack(self._read(form.size)))
        except OSError as error:
            self._fail(what, error)

    def close(self) -> None:
        """Leave the channel without waiting for the other end, which gets an error at once where it waits."""
        if self._socket is not None:
            self._socket.close()
        self._socket = self._segment = None

    def _open(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionError("the channel is closed since an earlier failure")
        return self._socket

    def _fail(self, what: str, error: Exception) -> NoReturn:
        verb = "was not taken by the engine" if self._is_sender else "did not come from the learner"
        raise WeightTransferError(f"{self.name}: {what} {verb} within {self._timeout_s:g} s: {error}") from error

    def _give(self, piece: torch.Tensor) -> None:
        self._await_taken()
        if self._segment is None or self._segment.nbytes < piece.numel():
            self._segment = make_segment(_roomy(piece.numel()), self.device)
            described, files = self._segment.describe()
            self._open().sendall(_HEAD.pack(_SEGMENT, len(described)) + described)
            for file in files:
                # with a byte: a stream socket carries no descriptors without data (unix(7))
                socket.send_fds(self._open(), [b"F"], [file])
        self._segment.bytes[: piece.numel()].copy_(piece)
        _settle(self.device)
        self._open().sendall(_HEAD.pack(_PIECE, piece.numel()))
        self._is_given = True

    def _await_taken(self) -> None:
        """Wait until the engine has copied the piece that was given it last, if it was not waited for before."""
        if self._is_given and self._read(1) != _TAKEN:
            raise ValueError("the engine answered something else")
        self._is_given = False

    def _take(self, piece: torch.Tensor) -> None:
        kind, size = _HEAD.unpack(self._read(_HEAD.size))
        if kind == _SEGMENT:
            self._segment = open_segment(self._read(size), self._open(), self.device)
            kind, size = _HEAD.unpack(self._read(_HEAD.size))
        if kind != _PIECE or size != piece.numel() or self._segment is None:
            raise ValueError(f"the learner sent {size} bytes where {piece.numel()} were expected")
        piece.copy_(self._segment.bytes[: piece.numel()])
        _settle(self.device)
        self._open().sendall(_TAKEN)

    def _read(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            part = self._open().recv(count - len(found))
            if not part:
                raise ConnectionError(f"{self._other} left")
            found += part
        return bytes(found)

    def _meet(self, address: str) -> socket.socket:
        """Listen for the worker, or call the learner; a process of another user is turned away."""
        deadline = time.monotonic() + self._timeout_s
        try:
            while True:
                link = _listen(address, deadline) if self._is_sender else _call(address, deadline)
                # abstract sockets have no permissions: anyone on the node may connect
                if _user_of(link) == os.getuid():
                    return link
                link.close()
        except OSError as error:
            raise WeightTransferError(
                f"{self.name}: {self._other} did not open its end of the weight transfer within {self._timeout_s:g} s: "
                f"{error}"
            ) from error


def _listen(address: str, deadline: float) -> socket.socket:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(1)
        listener.settimeout(max(0.1, deadline - time.monotonic()))
        return listener.accept()[0]


def _call(address: str, deadline: float) -> socket.socket:
    while True:
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(address)
            return link
        except OSError:
            link.close()
            if time.monotonic() > deadline:
                raise
        # polled: connecting to a name on which nobody listens fails at once
        time.sleep(_POLL_S)


def _user_of(link: socket.socket) -> int:
    """The user whose process is at the other end."""
    _, user, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(user)


def _roomy(nbytes: int) -> int:
    """Bytes of a new segment: powers of two, so that a tiny model needs no 256 MiB and a large one no second one."""
    return min(SEGMENT_BYTES, max(SMALLEST_SEGMENT_BYTES, 1 << (nbytes - 1).bit_length()))


def _settle(device: torch.device) -> None:
    """Wait for copies on the card: another process knows nothing of this one's streams."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Segment:
    """Memory that two processes address.

    Attributes:
        bytes: [nbytes] uint8.
        nbytes: Its size.
    """

    def __init__(self, memory: torch.Tensor, file: int = -1) -> None:
        self.bytes, self.nbytes, self._file = memory, int(memory.numel()), file

    def describe(self) -> tuple[bytes, list[int]]:
        """What the other process needs to open it: words, and files of this process."""
        if self.bytes.device.type == "cpu":
            return json.dumps({"nbytes": self.nbytes}).encode(), [self._file]
        # torch.multiprocessing.reductions has these values in this order
        device, handle, size, offset, counter, counter_offset, event, waits = (
            self.bytes.untyped_storage()._share_cuda_()
        )
        words = {
            "nbytes": self.nbytes,
            "card": str(torch.cuda.get_device_properties(device).uuid),
            "handle": _text(handle),
            "size": size,
            "offset": offset,
            "counter": _text(counter),
            "counter_offset": counter_offset,
            "event": _text(event),
            "waits": waits,
        }
        return json.dumps(words).encode(), []

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)


def make_segment(nbytes: int, device: torch.device) -> Segment:
    """A new segment on ``device``.

    Raises:
        OSError: The node has no memory for it.
    """
    if device.type == "cuda":
        return Segment(torch.empty(nbytes, dtype=torch.uint8, device=device))
    file = os.memfd_create("rltui-weights")
    os.posix_fallocate(file, 0, nbytes)  # else the first write where there is no memory would end the process
    return Segment(_mapped(file, nbytes), file)


def open_segment(described: bytes, link: socket.socket, device: torch.device) -> Segment:
    """The segment that ``describe`` spoke of at the other end of ``link``.

    Raises:
        ValueError: It is on another card.
        ConnectionError: Its file did not come.
    """
    words: dict[str, Any] = json.loads(described)
    if device.type == "cpu":
        _, files, _, _ = socket.recv_fds(link, 1, 1)
        if not files:
            raise ConnectionError("the learner's memory did not come with its word")
        return Segment(_mapped(files[0], words["nbytes"]), files[0])
    from torch.multiprocessing.reductions import rebuild_cuda_tensor

    card = str(torch.cuda.get_device_properties(device).uuid)
    if card != words["card"]:
        raise ValueError(f"the learner's memory is on card {words['card']}, and this process works on {card}")
    memory = rebuild_cuda_tensor(
        torch.Tensor,
        (words["nbytes"],),
        (1,),
        0,
        torch.storage.TypedStorage,
        torch.uint8,
        device.index,  # each process numbers the cards that it sees
        base64.b64decode(words["handle"]),
        words["size"],
        words["offset"],
        False,
        base64.b64decode(words["counter"]),
        words["counter_offset"],
        base64.b64decode(words["event"]),
        words["waits"],
    )
    return Segment(memory)


def _mapped(file: int, nbytes: int) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(file, nbytes), dtype=torch.uint8)


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
