"""What a role's process leaves for others to read while it hangs: its stacks, its newest collectives, torch's record.

All are memory files (memfd_create(2)): no disk is touched, they go with the process, and whoever may look at the
process finds them in /proc, also when it is stopped. ``rltui/onnode/evidence.py`` reads them.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import json
import mmap
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rltui.onnode import rundir

SLOTS, SLOT_BYTES = 128, 320

NEWEST = 200
"""Collectives of torch's record that are given on demand, besides all that are under way."""

COLLECTIVES = (
    "all_reduce", "all_reduce_coalesced", "broadcast", "reduce", "all_gather", "all_gather_into_tensor",
    "all_gather_object", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "gather",
    "scatter", "broadcast_object_list", "barrier", "monitored_barrier",
)  # fmt: skip
"""Functions of torch.distributed that all ranks of a group must call in the same order."""


class CollectiveRecord:
    """A ring of the newest collectives of this process; each is there from its begin on, and noted again at its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memory = _new_memory()
        self._count = 0
        self._sequence: dict[str, int] = {}

    @contextmanager
    def during(self, group: str, operation: str, rank: int, world: int, nbytes: int, what: str = "") -> Iterator[None]:
        """Note a collective that lasts as long as the block.

        Args:
            group: Name of the group, the same on all ranks; calls are numbered within it, from 1.
            operation: Such as ``broadcast``.
            rank: This process's rank.
            world: Ranks in the group.
            nbytes: Bytes of what it sends or takes.
            what: What travels.
        """
        entry = self.begin(group, operation, rank, world, nbytes, what)
        try:
            yield
        finally:
            self.end(entry)

    def begin(self, group: str, operation: str, rank: int, world: int, nbytes: int, what: str = "") -> dict[str, Any]:
        """Note the begin of a collective, as ``during`` does; ``end`` takes what is returned."""
        with self._lock:
            self._count += 1
            number = self._sequence[group] = self._sequence.get(group, 0) + 1
            entry: dict[str, Any] = {"n": self._count, "group": group, "seq": number, "op": operation, "rank": rank}
        entry |= {"world": world, "bytes": nbytes, "began": round(time.time(), 3), "ended": 0, "what": what[:80]}
        self._write(entry)
        return entry

    def end(self, entry: dict[str, Any]) -> None:
        """Note the end of a collective."""
        self._write({**entry, "ended": round(time.time(), 3)})

    def _write(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, separators=(",", ":")).encode()
        if self._memory is None or len(line) >= SLOT_BYTES:
            return
        at = entry["n"] % SLOTS * SLOT_BYTES
        self._memory[at : at + SLOT_BYTES] = line.ljust(SLOT_BYTES - 1) + b"\n"


def _new_memory() -> mmap.mmap | None:
    """The memory file; none where the system has no such thing."""
    if not hasattr(os, "memfd_create"):
        return None
    descriptor = os.memfd_create(rundir.COLLECTIVES_MEMORY)
    os.truncate(descriptor, SLOTS * SLOT_BYTES)
    memory = mmap.mmap(descriptor, SLOTS * SLOT_BYTES)  # keeps a descriptor of its own, by which others find it
    os.close(descriptor)
    return memory


RECORD = CollectiveRecord()
"""That of this process."""


def record_torch() -> None:
    """Note every collective of torch.distributed from now on; call it before DeepSpeed keeps references to them.

    What is queued on a card is over for these notes at once; torch's own record, had on demand, knows better.
    """
    import torch.distributed as dist

    _tell_flight_record()
    for name in COLLECTIVES:
        function = getattr(dist, name, None)
        if function is not None and not hasattr(function, "rltui_recorded"):
            setattr(dist, name, _recorded(function, name, dist))


def _recorded(function: Callable[..., Any], name: str, dist: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if not dist.is_initialized():
            return function(*arguments, **named)
        group = named.get("group")
        called = "all learners" if group is None or group is dist.group.WORLD else f"group {group.group_name}"
        size = next((_bytes(one) for one in (*arguments, *named.values()) if hasattr(one, "element_size")), 0)
        with RECORD.during(called, name, dist.get_rank(group), dist.get_world_size(group), size):
            try:
                return function(*arguments, **named)
            except RuntimeError:
                leave_flight_record(dist.get_rank())
                raise

    call.rltui_recorded = True  # type: ignore[attr-defined]
    return call


def leave_flight_record(rank: int, *, failed: bool = True) -> None:
    """Write torch's own record of this process's collectives, as it does by itself for NCCL, but not for gloo.

    Args:
        rank: Of this process among all.
        failed: Whether the newest collective failed: torch counts it as over, as any other.
    """
    prefix = os.environ.get(rundir.FLIGHT_RECORD_VARIABLE, "")
    with contextlib.suppress(OSError):  # a full disk: the error itself is told
        found = flight_record()
        if failed and found.get("entries"):
            found["entries"][-1].update(retired=False, state="failed")
        if prefix and found:
            # protocol 2, as torch's own pickler in C++ writes these files
            Path(f"{prefix}{rank}").write_bytes(pickle.dumps(found, 2))


def flight_record(*, frames: bool = True) -> dict[str, Any]:
    """Torch's record of this process's collectives, NCCL's where it has any, else gloo's; empty before torch 2.7.

    Args:
        frames: Whether to say from where each was called: the first time that takes torch a second or more.
    """
    from torch._C import _distributed_c10d

    found: dict[str, Any] = {}
    for name in ("_dump_nccl_trace", "_dump_fr_trace"):
        dump = getattr(_distributed_c10d, name, None)
        if dump is not None and not found.get("entries"):
            found = pickle.loads(dump(includeStackTraces=frames))
    return found


def _tell_flight_record() -> None:
    """Have a thread leave torch's record in a memory file whenever a byte comes into its pipe, whatever others do."""
    global _flight
    if _flight < 0 and hasattr(os, "memfd_create"):
        _flight = os.memfd_create(rundir.FLIGHT_MEMORY)
        # a pipe and not a signal: Python runs handlers in the main thread, which may be stuck in C
        asked, pipe = os.pipe()
        _write_flight(pipe, 0, {})
        threading.Thread(target=_leave_when_asked, args=(asked, pipe), name="flight-record", daemon=True).start()


def _leave_when_asked(asked: int, pipe: int) -> None:
    import torch.distributed as dist

    count = 0
    while os.read(asked, 1):
        count += 1
        rank = dist.get_rank() if dist.is_initialized() else None
        # without frames: what calls it stands in the stacks, and a healthy run is not held up
        record = flight_record(frames=False)
        entries = record.get("entries", [])
        under_way = [one for one in entries[:-NEWEST] if not one.get("retired")]
        _write_flight(pipe, count, {**record, "rank": rank, "entries": [*under_way, *entries[-NEWEST:]]})


def _write_flight(pipe: int, count: int, record: dict[str, Any]) -> None:
    """Write a record, and then that it is there."""
    data = json.dumps(record, default=str).encode()
    os.pwrite(_flight, data, rundir.FLIGHT_HEAD_BYTES)
    head = json.dumps({"pipe": pipe, "count": count, "bytes": len(data)}).encode()
    os.pwrite(_flight, head.ljust(rundir.FLIGHT_HEAD_BYTES), 0)


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


_stacks = _flight = -1


def tell_stacks() -> None:
    """Have faulthandler write the stacks of all threads whenever ``rundir.STACKS_SIGNAL`` comes, whatever they do."""
    global _stacks
    if _stacks < 0 and hasattr(os, "memfd_create"):
        _stacks = os.memfd_create(rundir.STACKS_MEMORY)
        # its handler is C and takes no GIL, so it answers also where a thread holds that in a collective
        faulthandler.register(rundir.STACKS_SIGNAL, file=_stacks, all_threads=True)
