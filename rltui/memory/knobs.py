"""Which setting lowers a given peak: the one that moves its largest part, not the one that sounds like memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.memory.estimate import Moment
    from rltui.memory.settings import Sharding, WeightSync, Workload

STATES = ("weights", "gradients", "optimizer", "adapters", "reference", "step")
TOKENS = ("activations", "layer", "logits", "cached blocks", "input gradients", "merged experts")
"""Parts that go with tokens, or, as experts with adapters' updates added, with how many layers keep theirs."""


def training_knob(
    peak: Moment, sharding: Sharding, workload: Workload, sync: WeightSync | None = None
) -> tuple[str, str]:
    """The override that lowers ``peak`` of a learner, and the reason; an empty override where only other GPUs help."""
    parts = peak.parts_gib
    states, tokens = sum(parts.get(name, 0.0) for name in STATES), sum(parts.get(name, 0.0) for name in TOKENS)
    if peak.moment == "weight sync" and sync is not None and sync.gather != "layer" and sharding.zero_stage == 3:
        return (
            "roles.learner.gather_whole_model=false",
            f"{parts['gathered']:.1f} GiB is the whole model, gathered to be sent",
        )
    if tokens > states:
        return _token_knob(parts, workload)
    if sharding.backend == "megatron" and sharding.replicas > 1:
        wider = f"roles.learner.pipeline_parallel={2 * sharding.pipeline_parallel}"
        return wider, f"{states:.1f} GiB are weights, gradients and optimizer"
    if sharding.zero_stage < 3 and sharding.replicas > 1:
        return "roles.learner.zero_stage=3", f"{states:.1f} GiB are weights, gradients and optimizer"
    more = 2 * sharding.gpus
    return "", f"{states:.1f} GiB are weights, gradients and optimizer: {more} learner GPUs would halve most of it"


def _token_knob(parts: dict[str, float], workload: Workload) -> tuple[str, str]:
    activations, logits = parts.get("activations", 0.0), parts.get("logits", 0.0)
    merged = parts.get("merged experts", 0.0)
    kept = activations + merged
    if workload.checkpointing == "none" and kept >= logits:
        what = "activations and experts with adapters' updates added" if merged else "activations"
        return "roles.learner.gradient_checkpointing=true", f"{kept:.1f} GiB are {what} that layers keep"
    what = "logits" if logits > activations else "activations"
    reason = f"{max(activations, logits):.1f} GiB are {what} of {workload.tokens} tokens at once"
    if workload.sequences > 1:
        return f"roles.learner.micro_batch={max(1, workload.sequences // 2)}", reason
    return "", f"{reason}: shorter sequences or more learner GPUs a sequence would help"


def valid_tensor_parallel(model: Architecture, most: int) -> list[int]:
    """Degrees up to ``most`` that divide the query heads, and divide the key/value heads or are divided by them."""
    return [
        degree
        for degree in range(1, most + 1)
        if model.heads % degree == 0 and (model.kv_heads % degree == 0 or degree % model.kv_heads == 0)
    ]


def engine_knob(model: Architecture, tensor_parallel: int, most: int, utilization: float, *, shared: bool) -> str:
    """The override that makes room for the KV cache of an engine.

    Args:
        model: The model.
        tensor_parallel: GPUs of one engine.
        most: GPUs of a node.
        utilization: Share of the card that it may take.
        shared: Whether a trainer is on the same GPU; then taking more of it is no way out.
    """
    larger = [degree for degree in valid_tensor_parallel(model, most) if degree > tensor_parallel]
    if not shared and utilization < 0.9:
        return "roles.rollout.memory_utilization=0.9"
    return f"roles.rollout.tensor_parallel={larger[0]}" if larger else ""
