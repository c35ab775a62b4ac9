"""Writing a rank's part of a checkpoint while the rank trains on, from a copy in host memory."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltui.onnode.sample_host import GIB, HostReader
from trainers.durable import flush_to_disk

SAVE_GROUP = "save"
"""Ray's concurrency group for calls that wait for a checkpoint's files while their rank trains."""

SPARE = 1.25
"""A copy is made only where this many times its bytes are free, so that nothing else of the node is pushed out."""


@dataclass(frozen=True)
class Written:
    """What writing took.

    Attributes:
        size: Bytes in files.
        seconds: In which they were written and brought onto the disk.
    """

    size: int
    seconds: float


class CheckpointWriter:
    """Takes the files of a rank's part of a checkpoint, and writes them.

    Args:
        write: Writes one file: called with its content and its path. DeepSpeed's own, so that files are as it reads
            them.
    """

    def __init__(self, write: Callable[[Any, str], None]) -> None:
        self._write = write
        self._host = HostReader()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._copying = 0
        self._copies: list[tuple[Any, str]] = []
        self._written: Future[Written] | None = None
        self._failure: Exception | None = None
        self._seconds = 0.0

    def open(self, copying: int) -> None:
        """Begin a checkpoint.

        Args:
            copying: Ranks of this node that copy at this moment, this one among them; 0: files are written as they are
                taken.
        """
        self._copying, self._copies, self._seconds, self._failure = copying, [], 0.0, None

    def take(self, state_dict: Any, path: str) -> None:
        """Take a file: a copy of its content where host memory has room, else it is written at once.

        It stands in the place of ``save`` of DeepSpeed's checkpoint engine, and has its parameters. A file that could
        not be written is told of by ``wait``: here the other ranks are in collectives, and would wait for this one.
        """
        # times the ranks that copy: all of them look at the same free memory at the same moment
        if self._copying and self._copying * SPARE * tensor_bytes(state_dict) < self._free_bytes():
            self._copies.append((host_copy(state_dict), path))
        elif self._failure is None:
            try:
                self._timed(self._write, state_dict, path)
            # torch's zip writer tells of a full disk by a RuntimeError (PytorchStreamWriter)
            except (OSError, RuntimeError) as error:
                self._failure = error

    def close(self, files: Callable[[], Iterable[Path]]) -> None:
        """Begin to write what was copied, and to bring all onto the disk.

        Args:
            files: The files that this rank has written, once they are.
        """
        self._written = self._thread.submit(self._finish, files)

    def wait(self) -> Written:
        """Wait until the files are on the disk.

        Raises:
            OSError, RuntimeError: They could not be written.
        """
        assert self._written is not None
        return self._written.result()

    def _finish(self, files: Callable[[], Iterable[Path]]) -> Written:
        if self._failure is not None:
            raise self._failure
        while self._copies:
            self._timed(self._write, *self._copies.pop(0))  # which frees its memory before the next file is written
        paths = list(files())
        self._timed(flush_to_disk, paths)
        return Written(sum(path.stat().st_size for path in paths if path.is_file()), self._seconds)

    def _timed(self, work: Callable[..., None], *arguments: Any) -> None:
        began = time.monotonic()
        work(*arguments)
        self._seconds += time.monotonic() - began

    def _free_bytes(self) -> float:
        used, total = self._host.memory_gib()
        return (total - used) * GIB


def tensor_bytes(state: Any) -> int:
    """Bytes of the tensors in ``state``, those with the same memory counted once."""
    sizes = {_memory_of(tensor): tensor.numel() * tensor.element_size() for tensor in _tensors(state)}
    return sum(sizes.values())


def host_copy(state: Any) -> Any:
    """A copy of ``state`` that no later step changes, with all tensors in host memory.

    Args:
        state: Dictionaries, lists and tuples of tensors and of other values. Tensors that are the same memory, as tied
            weights are, stay one.
    """
    import torch
    from torch.utils._pytree import tree_map

    copies: dict[tuple[Any, ...], Any] = {}

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return copy.deepcopy(value)
        memory = _memory_of(value)
        if memory not in copies:
            # copy=True: what is in host memory already (offloaded states) would else be the same memory, and change
            # with the next step
            copies[memory] = value.detach().to("cpu", copy=True)
        return copies[memory]

    return tree_map(copied, state)


def _tensors(state: Any) -> list[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(state) if isinstance(leaf, torch.Tensor)]


def _memory_of(tensor: Any) -> tuple[Any, ...]:
    """What tells a tensor from others; empty ones, which have no memory, by themselves."""
    place = tensor.data_ptr() if tensor.numel() else id(tensor)
    return place, tensor.device, tensor.dtype, tuple(tensor.shape), tensor.stride()
