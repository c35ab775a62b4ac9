"""Where nothing fits: which role does not, and the nearest changes after which something does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from rltui.hardware.gpus import Gpu
from rltui.hardware.gpus import gpus as cards
from rltui.plan import actor_critic
from rltui.plan.candidates import engine_choices, learner_choices, learner_counts, teacher_choices
from rltui.plan.rank import Sound, best_learner, propose
from rltui.plan.request import Request
from rltui.plan.setup import EngineChoice

WIDE_NODE = 8
DOUBLINGS = 8
SHORTEST_RESPONSE = 256


class Misfit(Struct, frozen=True, kw_only=True):
    """Why there is no plan.

    Attributes:
        role: ``learner``, ``rollout``, ``critic``, ``teacher``, or several of them where each fits, but not one beside
            the other.
        reason: What is missing, with numbers.
        remedies: What would help, nearest first; empty where nothing within reason does.
    """

    role: str
    reason: str
    remedies: tuple[str, ...]


def misfit(request: Request, sound: Sound) -> Misfit:
    """Say why nothing fits ``request``; ask only where nothing does. ``sound`` is as in ``propose``."""
    role, reason = _culprit(request)
    return Misfit(role=role, reason=reason, remedies=tuple(_remedies(request, sound)))


def _culprit(request: Request) -> tuple[str, str]:
    narrow = _engine_too_large("rollout", list(engine_choices(request)))
    if request.algorithm == "opd":
        narrow = narrow or _engine_too_large("teacher", list(teacher_choices(request)))
    if narrow:
        return narrow
    if request.algorithm == "ppo":
        return _shared_culprit(request)
    roles = "learner, rollout and teacher" if request.algorithm == "opd" else "learner and rollout"
    least = len(roles.replace(" and", ",").split(","))
    if request.total_gpus < least:
        there = "there is only one" if request.total_gpus == 1 else f"there are only {request.total_gpus}"
        return roles, f"each needs GPUs of its own, and {there}" + _learner_too(request)
    return _learner_alone(request) or (roles, "each fits, but the learners that fit leave no room for the engines")


def _engine_too_large(role: str, choices: Sequence[EngineChoice]) -> tuple[str, str] | None:
    if any(choice.memory.verdict != "no" for choice in choices):
        return None
    widest = choices[-1]
    return role, f"even over {widest.tensor_parallel} GPUs, {widest.memory.reason}"


def _learner_alone(request: Request) -> tuple[str, str] | None:
    counts = list(learner_counts(request))
    if any(best_learner(request, count) is not None for count in counts):
        return None
    least = min(learner_choices(request, counts[-1]), key=lambda choice: choice.memory.peak_gib)
    peak, gpu = least.memory.peak, request.gpu
    return (
        "learner",
        f"on {least.ranks} GPUs at most, {peak.moment} takes {peak.total_gib:.1f} GiB at ZeRO-{least.zero_stage} "
        f"and micro-batch {least.micro_batch}; {gpu.name} has {gpu.usable_gib:.1f}",
    )


def _shared_culprit(request: Request) -> tuple[str, str]:
    """The fullest role of the PPO setup that is nearest to fitting."""
    tried = list(actor_critic.sparest(request))
    if not tried:
        return "learner and critic", "there are fewer samples in a step than GPUs"
    nearest = min(tried, key=lambda setup: max(memory.peak_gib for memory in setup.memories.values()))
    worst = max(
        nearest.memories.values(), key=lambda memory: (memory.verdict == "no", not memory.blocked, memory.peak_gib)
    )
    training, gpu = nearest.learner, request.gpu
    if worst.blocked:
        return worst.role, f"beside the other roles, {worst.blocked}"
    return (
        worst.role,
        f"with the {nearest.placement} placement on {worst.gpus} GPUs, {worst.peak.moment} takes "
        f"{worst.peak_gib:.1f} GiB at ZeRO-{training.zero_stage} and micro-batch {training.micro_batch}; "
        f"{gpu.name} has {gpu.usable_gib:.1f}",
    )


def _learner_too(request: Request) -> str:
    least = min((choice.memory.peak_gib for choice in learner_choices(request, 1)), default=0.0)
    if least <= request.gpu.usable_gib:
        return ""
    return f"; the learner alone would take {least:.1f} GiB of {request.gpu.usable_gib:.1f}"


def _changed(request: Request, sound: Sound, **changes: int | Gpu) -> str:
    """The verdict of the best layout after ``changes``, in brackets where it is tight; empty where nothing fits."""
    best = propose(msgspec.structs.replace(request, **changes), sound, 1)
    if not best:
        return ""
    return " (tight)" if best[0].verdict == "tight" else " (fits)"


def _remedies(request: Request, sound: Sound) -> Iterator[str]:
    if more := _smallest(request, sound):
        yield f"more GPUs: --gpus {more}"
    if larger := _larger_card(request, sound):
        yield f"larger cards: --gpus {request.nodes}x{request.gpus_per_node}x{larger}"
    response = request.response_tokens // 2
    while response >= SHORTEST_RESPONSE:
        if verdict := _changed(request, sound, response_tokens=response):
            yield f"shorter responses: --response-tokens {response}{verdict}"
            break
        response //= 2


def _larger_card(request: Request, sound: Sound) -> str:
    """The nearest card with more memory of which as many would do, no slower than those asked for, and the verdict."""
    larger = (
        gpu for gpu in cards() if gpu.usable_gib > request.gpu.usable_gib and gpu.peak_flops >= request.gpu.peak_flops
    )
    tried = ((gpu, _changed(request, sound, gpu=gpu)) for gpu in sorted(larger, key=lambda gpu: gpu.usable_gib))
    return next((f"{gpu.name}{verdict}" for gpu, verdict in tried if verdict), "")


def _smallest(request: Request, sound: Sound) -> str:
    """The smallest larger cluster on which something fits, to a node, and the verdict; nothing up to 1024 GPUs.

    More nodes never fit less, so that the nodes between the last doubling that does not and the first that does are
    halved.
    """
    for nodes, gpus in _larger(request):
        verdict = _changed(request, sound, nodes=nodes, gpus_per_node=gpus)
        if not verdict:
            continue
        low = max(nodes // 2, request.total_gpus // gpus)
        while nodes - low > 1:
            middle = (low + nodes) // 2
            fits = _changed(request, sound, nodes=middle, gpus_per_node=gpus)
            low, nodes, verdict = (low, middle, fits) if fits else (middle, nodes, verdict)
        return f"{nodes}x{gpus}x{request.gpu.name}{verdict}"
    return ""


def _larger(request: Request) -> list[tuple[int, int]]:
    """Larger clusters, smallest first: more of the same nodes, one node of two or four, and nodes of eight.

    Wider nodes come first where they tie.
    """
    shapes = {(request.nodes * 2**power, request.gpus_per_node) for power in range(1, DOUBLINGS)}
    shapes |= {(2**power, WIDE_NODE) for power in range(DOUBLINGS - 2)}
    shapes |= {(1, 2), (1, 4)}
    larger = [shape for shape in shapes if request.total_gpus < shape[0] * shape[1] <= 1024]
    return sorted(larger, key=lambda shape: (shape[0] * shape[1], -shape[1]))
