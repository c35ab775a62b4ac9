"""Where nothing fits: which role does not, and the nearest changes after which something does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from rltui.layout.schema import Learner
from rltui.memory.from_layout import SYNC_BUCKET_GIB, states_of
from rltui.memory.settings import Sharding, WeightSync, Workload
from rltui.memory.training import estimate_training
from rltui.plan.candidates import (
    Request,
    engine_choices,
    learner_choices,
    learner_counts,
    precision,
)
from rltui.plan.rank import Sound, best_learner, propose

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDE_NODE = 8
DOUBLINGS = 8
SHORTEST_RESPONSE = 256


class Misfit(Struct, frozen=True, kw_only=True):
    """Why there is no plan.

    Attributes:
        role: ``learner``, ``rollout``, or ``learner and rollout`` where each fits, but not one beside the other.
        reason: What is missing, with numbers.
        remedies: What would help, nearest first; empty where nothing within reason does.
    """

    role: str
    reason: str
    remedies: tuple[str, ...]


def misfit(request: Request, sound: Sound) -> Misfit:
    """Say why nothing fits ``request``; ask only where nothing does. ``sound`` is as in ``propose``."""
    role, reason = _culprit(request)
    return Misfit(role=role, reason=reason, remedies=tuple(_remedies(request, role, sound)))


def _culprit(request: Request) -> tuple[str, str]:
    gpu = request.gpu
    engines = list(engine_choices(request))
    if all(choice.memory.verdict == "no" for choice in engines):
        widest = engines[-1]
        return "rollout", f"even over {widest.tensor_parallel} GPUs, {widest.memory.reason}"
    if request.total_gpus < 2:
        return "learner and rollout", "each needs GPUs of its own, and there is only one" + _learner_too(request)
    counts = list(learner_counts(request))
    if all(best_learner(request, count) is None for count in counts):
        least = min(learner_choices(request, counts[-1]), key=lambda choice: choice.memory.peak_gib)
        peak = least.memory.peak
        return (
            "learner",
            f"on {least.ranks} GPUs at most, {peak.moment} takes {peak.total_gib:.1f} GiB at ZeRO-{least.zero_stage} "
            f"and micro-batch {least.micro_batch}; {gpu.name} has {gpu.usable_gib:.1f}",
        )
    return "learner and rollout", "each fits, but the learners that fit leave no room for an engine that fits"


def _learner_too(request: Request) -> str:
    least = min((choice.memory.peak_gib for choice in learner_choices(request, 1)), default=0.0)
    if least <= request.gpu.usable_gib:
        return ""
    return f"; the learner alone would take {least:.1f} GiB of {request.gpu.usable_gib:.1f}"


def _changed(request: Request, sound: Sound, **changes: int) -> str:
    """The verdict of the best layout after ``changes``, in brackets where it is tight; empty where nothing fits."""
    best = propose(msgspec.structs.replace(request, **changes), sound, 1)
    if not best:
        return ""
    return " (tight)" if best[0].verdict == "tight" else " (fits)"


def _remedies(request: Request, role: str, sound: Sound) -> Iterator[str]:
    for nodes, gpus in _larger(request):
        if verdict := _changed(request, sound, nodes=nodes, gpus_per_node=gpus):
            yield f"more GPUs: --gpus {nodes}x{gpus}x{request.gpu.name}{verdict}"
            break
    response = request.response_tokens // 2
    while response >= SHORTEST_RESPONSE:
        if verdict := _changed(request, sound, response_tokens=response):
            yield f"shorter responses: --response-tokens {response}{verdict}"
            break
        response //= 2
    if role == "learner" and _offload_fits(request):
        yield "roles.learner.offload=optimizer, if your trainer has it (the bundled one does not)"


def _larger(request: Request) -> list[tuple[int, int]]:
    """Larger clusters, smallest first: more of the same nodes, and nodes of eight; wider nodes first where they tie."""
    shapes = {(request.nodes * 2**power, request.gpus_per_node) for power in range(1, DOUBLINGS)}
    shapes |= {(2**power, WIDE_NODE) for power in range(DOUBLINGS - 2)}
    larger = [shape for shape in shapes if request.total_gpus < shape[0] * shape[1] <= 1024]
    return sorted(larger, key=lambda shape: (shape[0] * shape[1], -shape[1]))


def _offload_fits(request: Request) -> bool:
    """Whether offload lets the learners fit that have room beside the narrowest engine that fits."""
    widths = [choice.tensor_parallel for choice in engine_choices(request) if choice.memory.verdict != "no"]
    ranks = request.total_gpus - min(widths, default=request.total_gpus)
    if not ranks:
        return False
    length = request.prompt_tokens + request.response_tokens
    estimate = estimate_training(
        request.model,
        Sharding(gpus=ranks, backend="deepspeed", zero_stage=3, offload="optimizer"),
        Workload(
            tokens=length, head_tokens=request.response_tokens, checkpointing="full", kernels="eager",
            head="streamed", mask=True,
        ),
        states_of(Learner(model=request.model_name, precision=precision(request.gpu))),
        sync=WeightSync(bucket_gib=SYNC_BUCKET_GIB),
        log_probs=True,
        capacity_gib=request.gpu.usable_gib,
    )  # fmt: skip
    return estimate.verdict != "no"
