"""Setups whose roles share GPUs: PPO apart, all on the same GPUs (standard), or in two pools (split); GRPO colocated.

Of a card that they share, engines get what policy, critic and reference leave.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from rltui.memory.estimate import TIGHT_HEADROOM, LayoutEstimate
from rltui.memory.layouts import estimate_roles
from rltui.plan.assemble import layout_of
from rltui.plan.candidates import (
    engine_choices,
    engines_beside,
    packed,
    preferred_s,
    role_of,
    sparest_way,
    training_ways,
)
from rltui.plan.setup import WHOLE, EngineChoice, Placement, Setup, Training
from rltui.plan.throughput import step_time
from rltui.plan.training import train_s

if TYPE_CHECKING:
    from rltui.plan.request import Request

PARTS = 8
"""A node, or a cluster, is split between the pools in eighths."""

EVERY_SIZE_UP_TO = 16
"""Up to so many GPUs every number of learners is tried; beyond that, sixteenths of the cluster."""

Way = tuple["Training", "Training | None"]
"""How the policy is trained, and the critic."""

LEAST_UTILIZATION = 0.1

COMPARED = 3
"""Ways to train that fit and whose steps are compared."""


class Division(Struct, frozen=True, kw_only=True):
    """Which GPUs train what.

    Attributes:
        placement: How roles share GPUs.
        policy: GPUs of the policy on each of its nodes.
        value: GPUs of the critic on each of its nodes; the same ones unless the placement is split.
    """

    placement: Placement
    policy: tuple[int, ...]
    value: tuple[int, ...]


def divisions(request: Request) -> Iterator[Division]:
    """All divisions worth a look; engines that run ahead need GPUs of their own."""
    nodes, size, total = request.nodes, request.gpus_per_node, request.total_gpus
    for count in _some(total, EVERY_SIZE_UP_TO):
        bundles = packed(count, size)
        yield Division(placement="apart", policy=bundles, value=bundles)
    if request.async_steps:
        return
    yield Division(placement="standard", policy=(size,) * nodes, value=(size,) * nodes)
    for part in _some(size, PARTS):
        yield Division(placement="split", policy=(part,) * nodes, value=(size - part,) * nodes)
    for part in _some(nodes, PARTS):
        yield Division(placement="split", policy=(size,) * part, value=(size,) * (nodes - part))


def colocated(request: Request) -> list[Setup]:
    """Learner and engines that take turns on all GPUs, without a critic; none where rollouts run ahead.

    Where they do not fit, with the optimizer in host memory: systems that colocate large models do so.
    """
    found = list(_colocated(request))
    if found or request.means.offload:
        return found
    return list(_colocated(structs.replace(request, means=structs.replace(request.means, offload=True))))


def _colocated(request: Request) -> Iterator[Setup]:
    everything = (request.gpus_per_node,) * request.nodes
    if request.async_steps or request.total_gpus > request.most_learners:
        return
    division = Division(placement="standard", policy=everything, value=everything)
    for engine in engine_choices(request):
        if engine.memory.verdict != "no":
            yield from _of_division(request, division, engine)


def _some(whole: int, parts: int) -> list[int]:
    """Numbers below ``whole``: all of them, or as many as ``parts`` make."""
    return sorted({whole * part // parts for part in range(1, parts)} - {0}) if whole > parts else [*range(1, whole)]


def setups(request: Request) -> Iterator[Setup]:
    """For each division and width of its engines the fastest setup that fits."""
    engines = [choice for choice in engine_choices(request) if choice.memory.verdict != "no"]
    for division in divisions(request):
        if max(sum(division.policy), sum(division.value)) <= request.most_learners:
            for engine in engines:
                yield from _of_division(request, division, engine)


def _of_division(request: Request, division: Division, engine: EngineChoice) -> Iterator[Setup]:
    """The fastest with engines that stay awake, and the fastest with engines that sleep while models train."""
    count = _engines(request, division, engine.tensor_parallel)
    if not count:
        return
    shared = division.placement != "apart"
    sparest = _way(request, division, sparest_way(request, division.policy))
    spare = _bare(division, engine, count, sparest, sleeps=shared)
    if with_memory(request, spare).verdict == "no":
        return  # no other way takes less
    ways = trainings(request, division)
    for sleeps in (False, True) if shared else (False,):
        found = best_that_fits(request, (_bare(division, engine, count, way, sleeps=sleeps) for way in ways))
        if found is not None:
            yield found


def _bare(division: Division, engine: EngineChoice, engines: int, way: Way, *, sleeps: bool) -> Setup:
    """A setup whose memory is still to be estimated."""
    policy, critic = way
    return Setup(
        learner=policy,
        critic=critic,
        engine=engine,
        engines=engines,
        placement=division.placement,
        sleeps=sleeps,
        memories={},
    )


def _engines(request: Request, division: Division, width: int) -> int:
    if any(sum(gpus) % request.means.sequence_parallel for gpus in (division.policy, division.value)):
        return 0  # some GPU would have nobody to share its sequences with
    if division.placement == "apart":
        return engines_beside(request, division.policy, width)
    if width <= request.gpus_per_node and any(entry % width for entry in division.policy):
        return 0  # the rest of an entry would wait while engines generate
    return min(request.prompts, sum(division.policy) // width)


def trainings(request: Request, division: Division) -> list[Way]:
    """Ways to train the policy, and the critic where there is one, fastest first."""
    fullest = max((division.policy, division.value), key=sum)
    ways = [_way(request, division, each) for each in training_ways(request, fullest)]
    critic = request.critic or request.model

    def seconds(way: Way) -> float:
        return preferred_s(request, way[0]) + (train_s(request, way[1], critic)[0] if way[1] else 0.0)

    return sorted(ways, key=seconds)


def best_that_fits(request: Request, wanted: Iterable[Setup]) -> Setup | None:
    """Of the first few with room to spare, the one with the shortest step; or else the first that fits at all.

    The fastest training may leave engines so little that generation takes longer than the next ways to train save.
    """
    roomy: list[Setup] = []
    tight = None
    for setup in wanted:
        found = with_memory(request, setup)
        if found.verdict == "fits":
            roomy.append(found)
        elif found.verdict == "tight" and tight is None:
            tight = found
        if len(roomy) == COMPARED:
            break
    return min(roomy, key=lambda setup: step_time(request, setup).step_s, default=tight)


def with_memory(request: Request, setup: Setup) -> Setup:
    """``setup`` with the largest share of the card for its engines that leaves room for all else, and what each takes.

    What an engine holds grows by as much as its share, whoever works beside it.
    """
    whole = structs.replace(setup, utilization=WHOLE)
    estimate = estimate_roles(layout_of(request, whole))
    capacity = request.gpu.usable_gib
    excess = _engine_peak_gib(estimate, setup) - (1 - TIGHT_HEADROOM) * capacity
    if setup.placement == "apart" or excess <= 0:
        return _estimated(whole, estimate)
    # down to whole percents: rounded up it might not fit
    share = math.floor(100 * (WHOLE - excess / capacity)) / 100
    lower = structs.replace(setup, utilization=max(LEAST_UTILIZATION, share))
    return _estimated(lower, estimate_roles(layout_of(request, lower)))


def _engine_peak_gib(estimate: LayoutEstimate, setup: Setup) -> float:
    """The most that a card holds while an engine is awake."""
    if setup.sleeps:
        moments = role_of(estimate, "rollout").moments
        return max(moment.total_gib for moment in moments if moment.moment == "generate")
    return max(role.peak_gib for role in estimate.roles if role.role != "critic" or setup.placement == "standard")


def _estimated(setup: Setup, estimate: LayoutEstimate) -> Setup:
    memories = {role.role: role for role in estimate.roles}
    engine = structs.replace(setup.engine, engine=estimate.engines[0], memory=memories["rollout"])
    return structs.replace(setup, engine=engine, memories=memories)


def _way(request: Request, division: Division, training: Training) -> Way:
    """``training`` on the GPUs of the policy, and of the critic where there is one."""
    policy, critic = (structs.replace(training, gpus=gpus) for gpus in (division.policy, division.value))
    return policy, critic if request.algorithm == "ppo" else None


def sparest(request: Request) -> Iterator[Setup]:
    """Each division, its engines asleep where they share GPUs, trained in the way that takes least: fitting or not."""
    engines = [choice for choice in engine_choices(request) if choice.memory.verdict != "no"]
    for division in divisions(request):
        if max(sum(division.policy), sum(division.value)) > request.most_learners:
            continue
        shared = division.placement != "apart"
        for engine in engines:
            count = _engines(request, division, engine.tensor_parallel)
            if count:
                way = _way(request, division, sparest_way(request, division.policy))
                yield with_memory(request, _bare(division, engine, count, way, sleeps=shared))
