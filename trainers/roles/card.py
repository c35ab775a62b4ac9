"""What every role process can say of its cards and do for those that share them."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Nothing that is imported is garbage, so the collector rests meanwhile, and never looks at it again.

    torch, DeepSpeed and transformers make 700,000 objects, which it would go through a thousand times: a fifth of the
    CPU seconds that their import takes, and a pause of training at each full collection after that.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def own_threads() -> int:
    """Threads that a role without a card computes with: those that the layout leaves it, else one."""
    return int(os.environ.get("OMP_NUM_THREADS", "1"))


def share_of_cpus(cards: int) -> int:
    """Threads for work in host memory of a role on one of a node's ``cards``: its share of the CPUs that the job has.

    Roles on the same card take turns. Ray would leave it one thread, because a bundle asks for one CPU a card, and an
    optimizer in host memory takes 1.3 s a billion parameters on one.
    """
    # not os.cpu_count(): Slurm confines a job to its CPUs, and the node has more
    return max(1, len(os.sched_getaffinity(0)) // max(1, cards))


def visible_cards() -> tuple[str, ...]:
    """UUIDs of the cards that this process may work on, in CUDA's order, without opening one of them.

    Empty where there is no driver or no card. NVML numbers cards by their address; role processes tell CUDA to do so,
    too (``CUDA_DEVICE_ORDER``).
    """
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        words = os.environ.get("CUDA_VISIBLE_DEVICES")
        named = [str(index) for index in range(pynvml.nvmlDeviceGetCount())] if words is None else words.split(",")
        return tuple(_uuid(word.strip()) for word in named if word.strip())
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def _uuid(word: str) -> str:
    """The UUID of a card that ``CUDA_VISIBLE_DEVICES`` names by number; other words are UUIDs, whole or begun."""
    import pynvml

    if not word.isdecimal():
        return word
    found = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(int(word)))
    return found.decode() if isinstance(found, bytes) else str(found)


class OnCard:
    """A role that shares its card with an engine."""

    def release_card(self) -> None:
        """Leave to the engine what this process does not use."""
        release_card()


def release_card() -> None:
    """Give back what torch's allocator keeps of the card for later: another process on the card cannot use it."""
    import torch

    if torch.cuda.is_available():
        # objects in cycles keep their tensors until then, and only blocks without any are given back
        gc.collect()
        torch.cuda.empty_cache()
