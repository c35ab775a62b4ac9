"""What holds up a run that makes steps: one rule a verdict, in the order in which they are told.

Every rule is a pure function of ``Recent`` and says nothing where its sources say nothing. Bounds are set so that a
balanced run, in which engines and learners take turns for about half of a step each, has no verdict.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from rltui.diagnose.recent import (
    GENERATION,
    LEARNER_WORK,
    TOTAL,
    EngineCounters,
    GpuRecord,
    Planned,
    Recent,
    Symptom,
    numbers,
)
from rltui.watch.phases import phase_names

MOSTLY = 0.7
"""A side that rests for this share of a step waits for the other one; so it is with a phase where nobody says who
rests. Engines and learners that share their cards rest only where both do."""

PARTLY, AT_WORK = 0.4, 0.2
"""So does one that rests for this share while the other hardly does: rollouts then run ahead of training."""

HALF = 0.5
WAITS = 0.25
"""Rewards, teacher, data and hand-overs are best hidden: from this share on they hold up the step."""

SAVES, EVALUATES = 0.15, 0.2
"""Share of all time that checkpoints, and evaluations, may take."""

TAIL = 4.0
"""The longest answer against the mean one."""

SLOW_ENGINE = 0.6
FULL_CACHE = 0.9
LOW_POWER = 0.6
HOT_C, HELD_BACK = 85.0, 0.85
COOLER_C = 10.0
"""By how much the others are cooler, where nobody knows the cards' roles: an engine at less power than a learner is."""

LEAST_PEERS = 3
SLOW_FRACTION = 0.5
PACE_S = 10.0
"""A few steps that took less than this together show what else the machine had to do just then, and no pace."""


class Told(Struct, frozen=True):
    """What a rule has to say."""

    sentence: str
    evidence: tuple[str, ...] = ()
    node: str = ""
    """The node that it speaks against; empty where it may be the run's own doing."""
    place: str = ""
    """The GPU that it speaks of."""


class Rule(NamedTuple):
    """One rule.

    Attributes:
        word: Its verdict in a word.
        cause: The cause that tells the story.
        find: What it says of a run; None: nothing.
        explains: Words of verdicts that only follow from this one.
    """

    word: str
    cause: str
    find: Callable[[Recent], Told | None]
    explains: tuple[str, ...] = ()


def slow_symptoms(recent: Recent) -> tuple[Symptom, ...]:
    """What holds up the run, the first one most; empty where nothing does, or where there are too few steps."""
    if not recent.is_enough:
        return ()
    found = [(rule, told) for rule in RULES if (told := rule.find(recent)) is not None]
    explained = {word for rule, _ in found for word in rule.explains}
    return tuple(
        Symptom(
            cause=rule.cause,
            word=rule.word,
            sentence=told.sentence,
            evidence=told.evidence,
            node=told.node,
            place=told.place,
        )
        for rule, told in found
        if rule.word not in explained
    )


def rollout_bound(recent: Recent) -> Told | None:
    """Learners wait for samples for most of a step: generation is what to make faster."""
    return _bound(recent, "learner", "generation", GENERATION, _occupancy(recent))


def learner_bound(recent: Recent) -> Told | None:
    """Engines wait for training for most of a step: learners are what to make faster."""
    return _bound(recent, "engine", "training", LEARNER_WORK)


def _bound(
    recent: Recent, rests: str, what: str, phases: tuple[str, ...], evidence: tuple[str, ...] = ()
) -> Told | None:
    """Whether one side rests because of what the other does.

    Args:
        recent: The run.
        rests: The side that may rest.
        what: What the other side does, in a word.
        phases: Its phases.
        evidence: What else speaks for it.
    """
    takes, idle = recent.share(*phases), recent.idle(rests)
    other = recent.idle("engine" if rests == "learner" else "learner")
    said = f"{what} takes {_of_step(recent, *phases)}"
    if idle is None:
        return Told(said, evidence) if takes is not None and takes >= MOSTLY else None
    if idle < MOSTLY and (idle < PARTLY or other is None or other > AT_WORK):
        return None
    if takes is not None and takes < HALF * (1.0 if idle >= MOSTLY else idle):
        return None  # it waits for something else
    return Told(f"{rests}s wait for {100 * idle:.0f} % of each step", (*((said,) if takes else ()), *evidence))


def teacher_bound(recent: Recent) -> Told | None:
    """The step waits for the teacher's scores."""
    return _takes(recent, "waiting for the teacher", WAITS, "time/teacher")


def reward_bound(recent: Recent) -> Told | None:
    """The step waits for rewards."""
    return _takes(recent, "waiting for rewards", WAITS, "time/reward")


def sync_bound(recent: Recent) -> Told | None:
    """The step waits for the hand-over of weights."""
    return _takes(recent, "handing over weights", WAITS, "time/weight_sync")


def data_bound(recent: Recent) -> Told | None:
    """The step waits for data."""
    return _takes(recent, "preparing data", WAITS, "time/data")


def critic_bound(recent: Recent) -> Told | None:
    """The critic's update is what an update waits for."""
    critic_s = recent.seconds("time/update_critic")
    # systems that train one after the other call the policy's update training
    actor_s = recent.seconds("time/update_actor") or recent.seconds("time/train")
    share = recent.share("time/update_critic")
    if share is None or not actor_s or share < PARTLY or critic_s < 1.5 * actor_s:
        return None
    return Told(
        f"the critic's update takes {_of_step(recent, 'time/update_critic')}", (f"the policy's takes {actor_s:.2g} s",)
    )


def save_overhead(recent: Recent) -> Told | None:
    """Checkpoints take much of all time."""
    return _now_and_then(recent, "time/saving", SAVES, "checkpoints")


def evaluation_overhead(recent: Recent) -> Told | None:
    """Evaluations take much of all time."""
    return _now_and_then(recent, "time/evaluate", EVALUATES, "evaluations")


def long_tail(recent: Recent) -> Told | None:
    """Few long answers hold up all others."""
    mean, longest = recent.late("response_length"), recent.late("response_length_max")
    if not mean or longest is None or longest < TAIL * mean or rollout_bound(recent) is None:
        return None
    return Told(
        f"the longest answer has {longest:.0f} tokens and the mean one {mean:.0f}, and the step waits for it",
        (f"generation takes {_of_step(recent, *GENERATION)}", *_occupancy(recent)),
    )


def kv_bound(recent: Recent) -> Told | None:
    """Requests wait in the engines because their KV cache is full."""
    full = [one for one in recent.engines if one.kv_share is not None and one.kv_share >= FULL_CACHE]
    running, waiting = sum(one.running for one in full), sum(one.waiting for one in full)
    if full and 2 * len(full) >= len(recent.engines) and waiting >= HALF * running:
        names = f"{len(full)} of {len(recent.engines)} engines"
        return Told(f"the KV cache of {names} is full: {running:.0f} requests run and {waiting:.0f} wait")
    share, preempted = recent.late("kv_cache_usage"), recent.growth("preemptions_total")
    ran, waited = recent.late("engine_running"), recent.late("engine_waiting")
    if share is None or share < FULL_CACHE:
        return None
    in_use = f"{100 * share:.0f} % of the engines' KV cache is in use"
    if ran is not None and waited is not None and waited >= HALF * ran:
        return Told(f"{in_use}: {ran:.0f} requests run and {waited:.0f} wait")
    return Told(f"{in_use}, {preempted:.0f} preemptions a step") if preempted >= 1.0 else None


def straggler(recent: Recent) -> Told | None:
    """One engine or GPU is much slower than its peers in the same role."""
    return _slow_engine(recent) or _slow_lane(recent) or _slow_gpu(recent.gpus)


def throttled(recent: Recent) -> Told | None:
    """A GPU is held back: its hardware says so, or it is hot and takes less power than cooler ones at the same work."""
    for one in recent.gpus:
        if one.held_back and one.utilization_percent >= 50:
            hot = f" at {one.temperature_c:.0f} °C" if one.temperature_c is not None else ""
            said = f"{one.place} has its clocks held back{hot}: {', '.join(one.held_back)}"
            return Told(said, node=one.host, place=one.place)
    return next(filter(None, (_hot(one, group) for group in _alike(recent.gpus) for one in group)), None)


def _hot(one: GpuRecord, group: Sequence[GpuRecord]) -> Told | None:
    hot_c, least_c = one.temperature_c or 0.0, 0.0 if one.role else COOLER_C
    cooler = [each for each in group if (each.temperature_c or HOT_C) < hot_c - least_c]
    if hot_c < HOT_C or one.utilization_percent < 50 or len(cooler) < LEAST_PEERS:
        return None
    usual_w = statistics.median(each.power_w for each in cooler)
    if one.power_w > HELD_BACK * usual_w:
        return None
    said = f"{one.place} is at {hot_c:.0f} °C and takes {one.power_w:.0f} W, cooler ones of the same"
    return Told(f"{said} {one.whose.split()[0]} {usual_w:.0f} W", node=_alone(one, group), place=one.place)


def slowed(recent: Recent) -> Told | None:
    """Training became much slower than the run's own early steps, and not for longer answers."""
    rate = recent.early_and_late("learner_tokens_per_second_step", PACE_S)
    if rate is None or not 0 < rate[1] < SLOW_FRACTION * rate[0]:
        return None
    return Told(f"throughput fell to {rate[1]:.0f} tokens/s from {rate[0]:.0f}", _grown(recent))


def _grown(recent: Recent) -> tuple[str, ...]:
    """The phase that takes more of a step than it did, where it is most of what the step takes more."""
    names = phase_names({name for step in recent.steps for name in step.values})
    took = {name: seen for name in (TOTAL, *names) if (seen := recent.early_and_late(name, PACE_S)) is not None}
    more_s = {name: late_s - early_s for name, (early_s, late_s) in took.items()}
    grown = max(names, key=lambda name: more_s.get(name, 0.0), default="")
    longer_s = more_s.get(TOTAL, 0.0)
    if longer_s <= 0 or more_s.get(grown, 0.0) <= HALF * longer_s:
        return ()
    early_s, late_s = took[grown]
    return (f"most of it is {grown}: {late_s:.3g} s of a step, {early_s:.3g} s before",)


def behind_plan(recent: Recent) -> Told | None:
    """A phase takes far longer than cards and layout explain."""
    if not recent.planned:
        return None
    worst, *others = sorted(recent.planned, key=lambda one: one.planned_s / one.measured_s)
    return Told(_behind(worst), tuple(map(_behind, others)))


def _behind(one: Planned) -> str:
    off = f"rltui plan, which may be off by a factor of {one.factor:g}, expects {one.planned_s:.3g} s"
    return f"{one.phase} takes {one.measured_s:.3g} s of a step where {off}"


RULES: tuple[Rule, ...] = (
    Rule("throttled", "gpu_throttled", throttled, ("straggler", "rollout-bound", "learner-bound")),
    Rule("straggler", "straggler", straggler, ("rollout-bound", "long tail")),
    Rule("KV-bound", "kv_bound", kv_bound, ("rollout-bound", "long tail")),
    Rule("reward-bound", "reward_bound", reward_bound, ("slowed",)),
    Rule("teacher-bound", "teacher_bound", teacher_bound, ("slowed",)),
    Rule("critic-bound", "critic_bound", critic_bound, ("learner-bound",)),
    Rule("sync-bound", "weight_sync_slow", sync_bound, ("slowed",)),
    Rule("data-bound", "data_bound", data_bound, ("slowed",)),
    Rule("save overhead", "save_overhead", save_overhead),
    Rule("eval overhead", "evaluation_overhead", evaluation_overhead),
    Rule("long tail", "long_tail", long_tail, ("rollout-bound",)),
    Rule("slowed", "run_slowed", slowed),
    Rule("behind plan", "behind_plan", behind_plan),
    Rule("rollout-bound", "rollout_bound", rollout_bound),
    Rule("learner-bound", "learner_bound", learner_bound),
)
"""Verdicts, those first that explain others, then those that are pure loss, then who waits for whom."""


def _takes(recent: Recent, what: str, bound: float, *names: str) -> Told | None:
    share = recent.share(*names)
    return Told(f"{what} takes {_of_step(recent, *names)}") if share is not None and share >= bound else None


def _of_step(recent: Recent, *names: str) -> str:
    share = recent.share(*names) or 0.0
    return f"{100 * share:.0f} % of each step ({recent.seconds(*names):.3g} of {recent.total_s or 0.0:.3g} s)"


def _occupancy(recent: Recent) -> tuple[str, ...]:
    busy = recent.late("engine_occupancy")
    return (f"{100 * busy:.0f} % of the engines' slots are in use while they work",) if busy is not None else ()


def _now_and_then(recent: Recent, name: str, bound: float, what: str) -> Told | None:
    share, times = recent.spent(name)
    if share < bound or times < 2:
        return None
    return Told(f"{what} take {100 * share:.0f} % of all time, {times} of them in the last {len(recent.steps)} steps")


def _slow_engine(recent: Recent) -> Told | None:
    """By what engines say in their logs: tokens a second for each request that they work on."""
    speeds = [(_speed(one), one) for one in recent.engines if one.tokens_per_second and one.running >= 1]
    for speed, one in speeds:
        others = [(each, other) for each, other in speeds if other is not one]
        if len(others) < 2:
            return None
        usual = statistics.median(each for each, _ in others)
        has_work = one.running >= HALF * statistics.median(other.running for _, other in others)
        if has_work and speed <= SLOW_ENGINE * usual:
            return Told(f"{one.name} makes {speed:.0f} tokens/s a request, its peers {usual:.0f}")
    return None


def _speed(engine: EngineCounters) -> float:
    return (engine.tokens_per_second or 0.0) / engine.running


def _slow_lane(recent: Recent) -> Told | None:
    """By what the trainer measures of its engines: the same one is the slowest nearly always, by much."""
    speed = recent.late("slowest_engine_speed")
    which = numbers(recent.window, "slowest_engine")
    if speed is None or speed > SLOW_ENGINE or not which:
        return None
    usual = statistics.mode(which)
    if which.count(usual) < 0.8 * len(which):
        return None
    return Told(f"engine {usual:.0f} makes a token at {100 * speed:.0f} % of the speed of its peers")


def _slow_gpu(gpus: Sequence[GpuRecord]) -> Told | None:
    """By power at work: cards of one role wait for the slowest, which takes the least."""
    for one, peers in slow_gpus(gpus):
        usual_w = statistics.median(each.power_w for each in peers)
        said = f"{one.place} takes {one.power_w:.0f} W at work, its {len(peers)} peers as {one.role or one.program}"
        return Told(f"{said} {usual_w:.0f} W", node=_alone(one, peers), place=one.place)
    return None


def slow_gpus(gpus: Sequence[GpuRecord]) -> Iterator[tuple[GpuRecord, list[GpuRecord]]]:
    """Each GPU that its peers wait for, with these: the cards of its role, else of its program."""
    for group in _alike(gpus):
        # engines have loads of their own
        if group[0].role == "engine" or min(each.utilization_percent for each in group) < 50:
            continue
        most_w = LOW_POWER * max(each.power_w for each in group)
        for one in group:
            if one.power_w > most_w:
                continue  # most of thousands: no median of the others is needed
            peers = [each for each in group if each is not one]
            is_slow = one.power_w <= LOW_POWER * statistics.median(each.power_w for each in peers)
            if is_slow and (one.role or _has_low_clock(one, peers)):
                yield one, peers


def _has_low_clock(one: GpuRecord, peers: Sequence[GpuRecord]) -> bool:
    """Whether a card runs slower than others that take more power, as none does that only has other work.

    Work that takes less power, such as an engine's beside a learner's, leaves a card the higher clock.
    """
    clocks = [each.clock_mhz for each in peers if each.clock_mhz is not None]
    return one.clock_mhz is not None and bool(clocks) and one.clock_mhz <= HELD_BACK * statistics.median(clocks)


def _alone(one: GpuRecord, peers: Sequence[GpuRecord]) -> str:
    """The node of ``one``, where it can be told from others: peers are elsewhere."""
    return one.host if any(each.host != one.host for each in peers) else ""


def _alike(gpus: Sequence[GpuRecord]) -> Iterator[list[GpuRecord]]:
    """The GPUs of each role or program, of one kind, where there are enough of them."""
    alike: dict[tuple[str, str], list[GpuRecord]] = {}
    for one in gpus:
        if one.whose:
            alike.setdefault((one.whose, one.name), []).append(one)
    return (group for group in alike.values() if len(group) > LEAST_PEERS)
