"""The process group that weights travel over, apart from torch.distributed's global state.

DeepSpeed owns the learner's global process group and vLLM its own, so neither can hold ranks of both. Ranks meet at a
TCP store on learner rank 0's node, say there which device they have, and then form one group: NCCL where all of them
have CUDA, gloo otherwise. Every wait has a deadline, and what is named when it passes is who did not come.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist

from trainers.roles.flight_recorder import RECORD

BUCKET_BYTES = 2**29
"""Largest bucket, in bytes, unless a group says otherwise; the learner has two, one filling while one travels."""

NCCL_ENVIRONMENT = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_ENABLE_MONITORING": "0"}
"""What torch reads when it makes a group: its watchdog and the watchdog's monitor report, and end no process. A peer
that dies is the affair of whoever waits for it, with a deadline of its own."""

_STORE_POLL_S = 0.02
_WORK_POLL_S = 0.0001


class WeightTransferError(RuntimeError):
    """Weights did not arrive. The group cannot be used again, and an engine may hold parts of two versions."""


@dataclass(frozen=True)
class WeightGroup:
    """Where the ranks of one weight transfer meet.

    Attributes:
        host: Address of learner rank 0's node that the engines can reach.
        port: Free TCP port there.
        world_size: 1 + engines * tensor_parallel. Learner rank 0 is rank 0; engine i's first worker is rank
            1 + i * tensor_parallel.
        timeout_s: How long an engine waits for the learner, and for each bucket.
        bucket_bytes: Largest bucket; the same on all ranks, because it decides where the stream is cut.
        places: Where an engine is on the learners' own cards: the place at which each of its workers meets the
            learner of its card, see ``trainers.shared_channel``. Worker w is rank 1 + w, and the learner, whose only
            place is its own, is rank 0; host and port mean nothing then.
    """

    host: str
    port: int
    world_size: int
    timeout_s: float = 300.0
    bucket_bytes: int = BUCKET_BYTES
    places: tuple[str, ...] = ()


def choose_backend(devices: Collection[str]) -> Literal["nccl", "gloo"]:
    """Return the backend for ranks on ``devices``: NCCL only where all have cards, no two of them the same.

    Args:
        devices: Of each rank, ``cuda`` with the card's UUID, or ``cpu``.
    """
    all_cards = all(device.startswith("cuda") for device in devices)
    return "nccl" if all_cards and len(set(devices)) == len(devices) else "gloo"


def route_words(devices: Sequence[str]) -> str:
    """How weights travel between ranks on ``devices``, and why where host memory is on the way."""
    if choose_backend(devices) == "nccl":
        return "NCCL, from card to card"
    without = [str(rank) for rank, device in enumerate(devices) if not device.startswith("cuda")]
    if len(without) == len(devices):
        why = "no rank has a card that NCCL can use"
    elif without:
        who = "rank" if len(without) == 1 else "ranks"
        why = f"{who} {', '.join(without)} of {len(devices)} cannot use NCCL on a card"
    else:
        same = [[str(rank) for rank, one in enumerate(devices) if one == card] for card in dict.fromkeys(devices)]
        pairs = "; ".join(f"ranks {', '.join(ranks)}" for ranks in same if len(ranks) > 1)
        why = f"NCCL refuses ranks on one card: {pairs}"
    return f"gloo, through host memory, because {why}"


class WeightChannel:
    """One rank's end of the group; opening it blocks until all ranks are there.

    Args:
        group: Where to meet.
        rank: This rank; rank 0 opens the store and is the source of every broadcast.
        owner: Who this is in errors, such as ``engine 0``.
        timeout_s: How long to wait for the other ranks, and for each broadcast.

    Attributes:
        name: Owner and rank, for errors.
        device: Where tensors to broadcast must be.
        route: In words, how weights travel, and why where it is not from card to card.
        keeps_tensors: Whether what ``begin`` was given must stay as it is until that has come to an end.

    Raises:
        WeightTransferError: Some ranks did not come in time; they are named.
    """

    keeps_tensors = True

    def __init__(self, group: WeightGroup, rank: int, owner: str, timeout_s: float) -> None:
        self.name = f"{owner} (rank {rank} of {group.world_size})"
        self._rank, self._world = rank, group.world_size
        self._timeout_s = timeout_s
        self._meeting = f"weight transfer group at {group.host}:{group.port}"
        deadline = time.monotonic() + timeout_s
        self._store: Any
        self._store, address = self._open_store(group, deadline)
        devices = self._meet(group.world_size, deadline)
        backend, self.route = choose_backend(devices), route_words(devices)
        self.device = torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")
        try:
            self._group: Any = _form_group(backend, self._store, rank, group.world_size, address, timeout_s)
        except RuntimeError as error:
            raise WeightTransferError(f"{self.name}: the {self._meeting} could not be formed: {error}") from error

    def broadcast(self, tensor: torch.Tensor, what: str) -> None:
        """Send ``tensor`` (rank 0) or overwrite it by what rank 0 sends (others); blocks until it is done.

        Args:
            tensor: Contiguous, on ``device``, of the same size on all ranks.
            what: What travels, for the error.

        Raises:
            WeightTransferError: Not all ranks took part in time, or one of them is gone.
        """
        self.begin(tensor, what)()

    def begin(self, tensor: torch.Tensor, what: str) -> Callable[[], None]:
        """Start ``broadcast``; what is returned waits for its end. Calls that were begun travel in their order.

        Raises:
            WeightTransferError: As ``broadcast``; so does what is returned.
        """
        if self._group is None:
            raise WeightTransferError(f"{self.name}: {what}: the {self._meeting} is closed since an earlier failure")
        if tensor.numel() == 0:
            return nothing
        options = dist.BroadcastOptions()
        options.rootRank = 0
        size = tensor.numel() * tensor.element_size()
        entry = RECORD.begin(self._meeting, "broadcast", self._rank, self._world, size, what)
        with self._named(what):
            work = self._group.broadcast([tensor], options)

        def finish() -> None:
            try:
                with self._named(what):
                    self._wait(work)
            finally:
                RECORD.end(entry)

        return finish

    def begin_integers(self, values: Sequence[int], what: str) -> Callable[[], None]:
        """Start to send ``values``, as ``begin``; for rank 0 only."""
        return self.begin(torch.tensor(values, dtype=torch.int64, device=self.device), what)

    @contextlib.contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Say of errors inside what did not come through."""
        try:
            yield
        except RuntimeError as error:
            verb = "could not be sent to all engines" if self._rank == 0 else "did not come from the learner"
            raise WeightTransferError(f"{self.name}: {what} {verb} within {self._timeout_s:g} s: {error}") from error

    def broadcast_integers(self, values: Sequence[int], what: str) -> list[int]:
        """Return rank 0's ``values`` on all ranks; the others give as many of any. Otherwise as ``broadcast``."""
        carrier = torch.tensor(values, dtype=torch.int64, device=self.device)
        self.broadcast(carrier, what)
        return [int(value) for value in carrier.tolist()]

    def close(self) -> None:
        """Leave the group without waiting for the others; who waits for this rank gets an error at once."""
        if self._group is not None:
            # NCCL's kernels of a broadcast that a dead peer left half way never return by themselves
            self._group.abort()
        # Gloo closes its connections only when the group is freed.
        self._group = None
        self._store = None

    def _open_store(self, group: WeightGroup, deadline: float) -> tuple[Any, str]:
        """Open or reach the store; return it and the address of this node on the way to it."""
        left = timedelta(seconds=max(0.1, deadline - time.monotonic()))
        where = (group.host, group.port)
        if self._rank == 0:
            try:
                family = socket.getaddrinfo(*where, type=socket.SOCK_STREAM)[0][0]
                # Bound to this one address: the store asks nobody for a password.
                listener = socket.create_server(where, family=family)
            except OSError as error:
                raise WeightTransferError(f"{self.name} cannot listen for the {self._meeting}: {error}") from error
            address = str(listener.getsockname()[0])
            # the store closes it: a Python socket would close the same number a second time
            listen_fd = listener.detach()
            # wait_for_workers=False: the store's own wait does not name who is missing, _meet does
            return dist.TCPStore(*where, None, True, left, False, master_listen_fd=listen_fd), address
        address = self._reach(where, deadline)
        try:
            return dist.TCPStore(*where, None, False, left, False), address
        except dist.DistError as error:
            raise WeightTransferError(f"{self.name}: the learner left the {self._meeting}: {error}") from error

    def _reach(self, where: tuple[str, int], deadline: float) -> str:
        """Wait until the learner listens; TCPStore's own retries print a stack trace for each."""
        while True:
            try:
                with socket.create_connection(where, timeout=max(0.1, deadline - time.monotonic())) as connection:
                    return str(connection.getsockname()[0])
            except OSError as error:
                if time.monotonic() > deadline:
                    raise WeightTransferError(
                        f"{self.name}: the learner did not open the {self._meeting} "
                        f"within {self._timeout_s:g} s: {error}"
                    ) from error
            time.sleep(_STORE_POLL_S)

    def _meet(self, world_size: int, deadline: float) -> list[str]:
        """Tell the others of this rank and return the device of every rank."""
        keys = [f"device/{rank}" for rank in range(world_size)]
        try:
            self._store.set(keys[self._rank], _device())
            # store.wait names every key that it waited for, not those that are missing
            while not self._store.check(keys):
                if time.monotonic() > deadline:
                    missing = [str(rank) for rank, key in enumerate(keys) if not self._store.check([key])]
                    raise WeightTransferError(
                        f"{self.name}: not all joined the {self._meeting} within {self._timeout_s:g} s: "
                        f"{'rank' if len(missing) == 1 else 'ranks'} {', '.join(missing)} did not"
                    )
                time.sleep(_STORE_POLL_S)
            return [self._store.get(key).decode() for key in keys]
        except dist.DistError as error:
            raise WeightTransferError(f"{self.name}: the learner left the {self._meeting}: {error}") from error

    def _wait(self, work: Any) -> None:
        """Wait for ``work`` to be over: NCCL's own wait only queues, and its watchdog would end the process."""
        if self.device.type == "cpu":
            work.wait(timedelta(seconds=self._timeout_s))  # gloo's is over when the work is, and not 0.1 ms later
            return
        deadline = time.monotonic() + self._timeout_s
        while not work.is_completed():
            if time.monotonic() > deadline:
                raise WeightTransferError("timed out")
            time.sleep(_WORK_POLL_S)
        # an operation that failed counts as completed too, and waiting for it raises nothing
        if (error := work.exception()) is not None:
            raise error
        # it is over by now: this lets the current stream wait for what NCCL's own stream has written
        work.wait()


def nothing() -> None:
    """What waits for the end of nothing."""


def _device() -> str:
    if not (torch.cuda.is_available() and dist.is_nccl_available()):
        return "cpu"
    return f"cuda {torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """``values`` in the environment of this process, for what reads them in the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _form_group(backend: str, store: Any, rank: int, world_size: int, address: str, timeout_s: float) -> Any:
    # NCCL's unique id lies in the store too: under a prefix it meets no key of ours
    prefixed = dist.PrefixStore(backend, store)
    if backend == "nccl":
        options = dist.ProcessGroupNCCL.Options()
        # Calls return while a peer that died is still waited for, so that ``abort`` can come between.
        options.config.blocking = 0
        # Beyond our own deadline, which names who is missing.
        options._timeout = timedelta(seconds=2 * timeout_s)
        with _environment(NCCL_ENVIRONMENT):
            return dist.ProcessGroupNCCL(prefixed, rank, world_size, options)
    options = dist.ProcessGroupGloo._Options()
    # By address: the default takes the host name's, which on many nodes is a loopback address.
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
    options._timeout = timedelta(seconds=timeout_s)
    return dist.ProcessGroupGloo(prefixed, rank, world_size, options)
