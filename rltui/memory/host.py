"""What a run needs beside GPU memory: host RAM, shared memory and disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.hardware.parameters import count_parameters
from rltui.memory.estimate import GIB, HostEstimate
from rltui.memory.states import slice_of, trained_parameters

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.memory.settings import Adapter, Sharding, States

PROCESS_GIB = 3.0
"""Resident memory of a process with torch and its CUDA libraries, before it holds a model."""

RAY_GIB = 2.0
"""Raylet, object store in use, dashboard and agents of one node."""

PINNED_BUFFER = 1.5
"""DeepSpeed's own estimate of pinned buffers over the bytes it offloads."""

SHM_PER_PROCESS_GIB = 1.0
"""NCCL's shared-memory transport and vLLM's message queues, for each GPU process of a node."""

SHM_RAY_GIB = 2.0
"""Ray's object store with the samples of a step."""


def estimate_host(
    model: Architecture,
    sharding: Sharding,
    states: States,
    *,
    learners: int,
    engines: int = 0,
    engine_gpus: int = 0,
    sleeping: bool = False,
    adapter: Adapter | None = None,
    freeze_vision: bool = False,
) -> HostEstimate:
    """Estimate host memory of the fullest node.

    Args:
        model: The model.
        sharding: How it is divided.
        states: Bytes of a parameter.
        learners: Learner ranks on the node.
        engines: Engines on the node.
        engine_gpus: Their GPUs.
        sleeping: Whether engines keep a copy of their weights in host memory while they sleep.
        adapter: Low-rank adapters, where the model is frozen.
        freeze_vision: Whether the vision tower is frozen.
    """
    total = count_parameters(model).total
    processes = learners + engine_gpus
    loading = 0.0
    if learners and sharding.zero_stage < 3:
        part = slice_of(model, sharding).whole
        loading = part * states.weights * learners  # every rank reads its part into host memory before the card
    offloaded = 0.0
    if sharding.offload in ("optimizer", "all"):
        trained = trained_parameters(model, adapter, freeze_vision=freeze_vision)
        # 4: the gradient in float32, with which the optimizer steps in host memory
        moved = trained * (states.master + states.moments + 4)
        stored = states.weights if adapter is None else adapter.base_bytes
        moved += total * stored if sharding.offload == "all" else 0.0
        offloaded = moved / sharding.gpus * learners * PINNED_BUFFER
    parts = {
        "processes": PROCESS_GIB * processes + RAY_GIB,
        "loading": loading / GIB,
        "offload": offloaded / GIB,
        "sleeping engines": (total * 2 * engines / GIB) if sleeping else 0.0,
    }
    return HostEstimate(
        ram_parts_gib={name: size for name, size in parts.items() if size},
        shm_gib=SHM_PER_PROCESS_GIB * processes + SHM_RAY_GIB,
    )


def checkpoint_gib(
    model: Architecture, states: States, adapter: Adapter | None = None, *, freeze_vision: bool = False
) -> float:
    """GiB on disk of a checkpoint to resume from: weights, master weights and moments, of all ranks together.

    Of a frozen vision tower there are the weights alone; of a model under adapters nothing.
    """
    trained = trained_parameters(model, adapter, freeze_vision=freeze_vision)
    frozen = 0 if adapter is not None else count_parameters(model).total - trained
    return (trained * (states.weights + states.master + states.moments) + frozen * states.weights) / GIB
