"""How new weights get from the learner to the engines: a broadcast in buckets that carries its version.

Learner rank 0 is rank 0 of a process group of its own, outside torch.distributed's global state, and engine i's
first worker is rank 1 + i * tensor_parallel (a tensor-parallel worker loads its shard of what it receives). The
parameters are packed as raw bytes, in the order of the manifest, into buckets of at most ``bucket_bytes``. Nobody ever
holds a second copy of the model: an engine holds one bucket, the learner two, because it gathers the next while one
travels.

Engines on the learners' own cards get their weights there: every learner rank sends to the worker on its card, over a
channel of their own (``trainers.shared_channel``), the same buckets in the same order.

On the wire, each bucket is a header of four int64 (version, number of parameters, bytes, checksum of the parameters'
names, dtypes and shapes) and then the bytes. A header of zero parameters ends the transfer. The header is what turns
a learner and an engine that disagree into an error instead of wrong weights or a wait without end.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from trainers.shared_channel import SharedChannel
from trainers.weight_channel import BUCKET_BYTES, WeightChannel, WeightGroup, WeightTransferError

__all__ = [
    "Bucket",
    "ParameterMeta",
    "WeightGroup",
    "WeightReceiver",
    "WeightSender",
    "WeightTransferError",
    "next_offset",
    "plan_buckets",
]

ALIGNMENT_BYTES = 16
"""Parameters start at multiples of this within a bucket, so that their bytes can be viewed as any dtype."""

UNCHECKED_VERSION = -1
"""Version on the wire where the sender was not told one; receivers take any."""


@dataclass(frozen=True)
class ParameterMeta:
    """What an engine must know of a parameter before its bytes come.

    Attributes:
        name: Name in the Hugging Face model, such as ``model.layers.0.self_attn.q_proj.weight``.
        dtype: dtype on the wire, without the ``torch.`` (``float32``, ``bfloat16``); the engine converts to its own.
        shape: Full shape, not that of a ZeRO-3 or tensor-parallel shard.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor) -> ParameterMeta:
        """Return the metadata of ``tensor``."""
        return cls(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype as torch's object."""
        return getattr(torch, self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the parameter on the wire."""
        return math.prod(self.shape) * self.torch_dtype.itemsize


@dataclass(frozen=True)
class Bucket:
    """Parameters that travel in one buffer, each at its offset in bytes."""

    parameters: tuple[ParameterMeta, ...]
    offsets: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole buffer, gaps included."""
        return self.offsets[-1] + self.parameters[-1].nbytes

    def unpack(self, buffer: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
        """Return the parameters in ``buffer`` (uint8, shape [nbytes]) as views of it, with their names."""
        pairs = zip(self.parameters, self.offsets, strict=True)
        return [(meta.name, _view(buffer[at : at + meta.nbytes], meta)) for meta, at in pairs]


def next_offset(end: int, nbytes: int, limit: int) -> int:
    """Return where in a bucket that is filled up to ``end`` the next parameter goes; 0: it opens a new bucket.

    This is the only rule of how the stream is cut. It looks at nothing that comes later, so the learner can apply it
    while it gathers one parameter after the other and the engine to the whole manifest, with the same result.

    Args:
        end: Bytes used in the bucket so far.
        nbytes: Bytes of the next parameter. One that is larger than ``limit`` gets a bucket of its own.
        limit: Largest bucket in bytes.
    """
    offset = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return offset if offset + nbytes <= limit else 0


def plan_buckets(manifest: Iterable[ParameterMeta], limit: int = BUCKET_BYTES) -> list[Bucket]:
    """Cut ``manifest`` into buckets of at most ``limit`` bytes, keeping its order."""
    plan: list[tuple[list[ParameterMeta], list[int]]] = []
    end = 0
    for meta in manifest:
        offset = next_offset(end, meta.nbytes, limit)
        if offset == 0:
            plan.append(([], []))
        plan[-1][0].append(meta)
        plan[-1][1].append(offset)
        end = offset + meta.nbytes
    return [Bucket(tuple(metas), tuple(offsets)) for metas, offsets in plan]


def open_channel(group: WeightGroup, rank: int, owner: str, timeout_s: float) -> WeightChannel | SharedChannel:
    """Return the end of ``rank`` of the channel that weights take in ``group``; blocks until all ends are there."""
    if group.places:
        return SharedChannel(group.places[max(0, rank - 1)], rank == 0, owner, timeout_s)
    return WeightChannel(group, rank, owner, timeout_s)


class WeightSender:
    """The learner's end: learner rank 0 broadcasts its parameters to all engines.

    Opening blocks until all engines have joined.

    Args:
        group: Where to meet; ``host`` must be an address of this node.
        timeout_s: How long to wait for the engines to join, and for each bucket to be taken.

    Raises:
        WeightTransferError: Some ranks did not join in time; they are named.
    """

    def __init__(self, group: WeightGroup, timeout_s: float) -> None:
        self._limit = group.bucket_bytes
        self._channel = open_channel(group, 0, "learner", timeout_s)
        self._capacity = ALIGNMENT_BYTES
        self._under_way: list[Callable[[], None]] = []

    @property
    def route(self) -> str:
        """In words, how weights travel, and why where it is not from card to card."""
        return self._channel.route

    def send(self, tensors: Iterable[tuple[str, torch.Tensor]], version: int = UNCHECKED_VERSION) -> int:
        """Broadcast ``tensors``, which must come in the order, dtypes and shapes of the engines' manifest.

        Each tensor is read before the next one is asked for, so a generator may gather and free them one by one.

        Args:
            tensors: Names and full tensors, on any device.
            version: The version that the engines were told to expect; they refuse another one.

        Returns:
            Bytes of the tensors.

        Raises:
            WeightTransferError: An engine did not take a bucket in time, or its process is gone.
        """
        try:
            sent = self._stream(tensors, version)
            end = f"the end of version {version}"
            self._under_way.append(self._channel.begin_integers(_header(version, [], 0), end))
            self._await_taken()
            return sent
        except BaseException:
            self.close()  # the engines must not wait for the rest
            raise

    def close(self) -> None:
        """Leave the process group of the weights; a later transfer opens another."""
        self._channel.close()

    def _stream(self, tensors: Iterable[tuple[str, torch.Tensor]], version: int) -> int:
        pack, spare, sent = _Pack(self._channel.device, self._capacity, self._limit), None, 0
        for name, tensor in tensors:
            meta = ParameterMeta.of(name, tensor)
            offset, sent = next_offset(pack.end, meta.nbytes, self._limit), sent + meta.nbytes
            # 0 is also the place of the very first parameter, before which there is nothing to send
            if offset == 0 and pack.parameters:
                self._ship(pack.parameters, pack.payload, version)
                # NCCL and gloo read the buffer until the broadcast is over: the next bucket is filled into another
                if self._channel.keeps_tensors:
                    pack, spare = spare or _Pack(self._channel.device, pack.capacity, self._limit), pack
                pack.clear()
            # an embedding of 150,000 tokens is larger than a bucket: it travels from where it is, with no copy of it
            # packed
            if meta.nbytes > self._limit:
                self._ship([meta], _as_bytes(tensor.to(self._channel.device)), version)
                self._await_taken()  # the tensor is gone when the next one is asked for
            else:
                pack.add(meta, offset, tensor)
        if pack.parameters:
            self._ship(pack.parameters, pack.payload, version)
        self._capacity = pack.capacity
        return sent

    def _ship(self, parameters: Sequence[ParameterMeta], payload: torch.Tensor, version: int) -> None:
        """Let a bucket begin to travel, when the one before has been taken: the memory of that is free then."""
        self._await_taken()
        what = f"version {version}, bucket from {parameters[0].name!r} ({payload.numel()} bytes)"
        header = _header(version, parameters, payload.numel())
        self._under_way.append(self._channel.begin_integers(header, what))
        # an oversized parameter goes in pieces: each broadcast has its deadline, meant for a bucket
        self._under_way += [self._channel.begin(part, what) for part in payload.split(self._limit)]

    def _await_taken(self) -> None:
        under_way, self._under_way = self._under_way, []
        for finish in under_way:
            finish()


class WeightReceiver:
    """An engine worker's end.

    Opening blocks until the learner and all other workers have joined.

    Args:
        group: Where to meet.
        rank: This worker's rank in the group, 1 or more.
        owner: Who this is in errors, such as ``engine 0``.

    Raises:
        WeightTransferError: The learner or another rank did not come in time; it is named.
    """

    def __init__(self, group: WeightGroup, rank: int, owner: str) -> None:
        self._limit = group.bucket_bytes
        self._channel = open_channel(group, rank, owner, group.timeout_s)

    def receive(self, manifest: Sequence[ParameterMeta], version: int) -> Iterator[list[tuple[str, torch.Tensor]]]:
        """Yield the parameters of ``manifest`` bucket by bucket, as names and tensors.

        The tensors are views of a buffer that no later bucket uses, so they may be kept. Iterate to the end: only
        then is it known that the learner had no more parameters than the manifest.

        Raises:
            WeightTransferError: The learner sent nothing in time, another version, or other parameters.
        """
        complete = False
        try:
            for bucket in plan_buckets(manifest, self._limit):
                yield self._take(bucket, version)
            self._expect([], 0, version, f"the end of version {version}")
            complete = True
        finally:
            if not complete:
                self.close()  # the learner must not wait for this rank to take the rest

    def close(self) -> None:
        """Leave the process group of the weights; a later transfer opens another."""
        self._channel.close()

    def _take(self, bucket: Bucket, version: int) -> list[tuple[str, torch.Tensor]]:
        what = f"version {version}, bucket from {bucket.parameters[0].name!r} ({bucket.nbytes} bytes)"
        self._expect(bucket.parameters, bucket.nbytes, version, what)
        buffer = torch.empty(bucket.nbytes, dtype=torch.uint8, device=self._channel.device)
        for part in buffer.split(self._limit):
            self._channel.broadcast(part, what)
        return bucket.unpack(buffer)

    def _expect(self, parameters: Sequence[ParameterMeta], nbytes: int, version: int, what: str) -> None:
        expected = _header(version, parameters, nbytes)
        sent = self._channel.broadcast_integers([0] * len(expected), what)
        if sent[0] not in (version, UNCHECKED_VERSION):
            raise WeightTransferError(f"{self._channel.name} waits for version {version}, the learner sent {sent[0]}")
        if sent[1:] != expected[1:]:
            raise WeightTransferError(
                f"{self._channel.name} waits for {what}, {len(parameters)} parameters, but the learner sent "
                f"{sent[1]} parameters in {sent[2]} bytes: the manifest is not what the learner sends"
            )


class _Pack:
    """The bucket that the sender is filling."""

    def __init__(self, device: torch.device, capacity: int, limit: int) -> None:
        self.parameters: list[ParameterMeta] = []
        self.end = 0
        self._limit = limit
        self._buffer = torch.empty(capacity, dtype=torch.uint8, device=device)

    @property
    def capacity(self) -> int:
        return int(self._buffer.numel())

    @property
    def payload(self) -> torch.Tensor:
        return self._buffer[: self.end]

    def add(self, meta: ParameterMeta, offset: int, tensor: torch.Tensor) -> None:
        end = offset + meta.nbytes
        if end > self.capacity:
            # Doubling: a tiny model must not pay for a GiB, and a large one copies its first bucket only a few times.
            grown = torch.empty(
                min(self._limit, max(end, 2 * self.capacity)), dtype=torch.uint8, device=self._buffer.device
            )
            grown[: self.end] = self.payload
            self._buffer = grown
        _view(self._buffer[offset:end], meta).copy_(tensor.detach())
        self.parameters.append(meta)
        self.end = end

    def clear(self) -> None:
        self.parameters = []
        self.end = 0


def _view(raw: torch.Tensor, meta: ParameterMeta) -> torch.Tensor:
    return raw.view(meta.torch_dtype).view(meta.shape)


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def _header(version: int, parameters: Sequence[ParameterMeta], nbytes: int) -> list[int]:
    described = repr([(meta.name, meta.dtype, tuple(meta.shape)) for meta in parameters])
    # not hash(), which each process salts anew
    return [version, len(parameters), nbytes, zlib.crc32(described.encode())]
