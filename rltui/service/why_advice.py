"""What the layout of a live run could change about what holds it up: tried, checked, and worth its while.

Each lever is an override with the step time that the measured phases let one expect: generation over more engines,
training over more GPUs, phases that overlap. That is arithmetic on what was measured, and takes scaling for ideal, so
it is called ``about``. A lever is shown only where memory, placement and rules find the changed layout as sound as the
one that runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct, structs

from rltui.check.run import check_text
from rltui.diagnose.causes import slow
from rltui.diagnose.index import CAUSES
from rltui.diagnose.recent import GENERATION, LEARNER_WORK, Recent
from rltui.diagnose.verdicts import SURE_ENOUGH, Change, Diagnosis, Remedy
from rltui.errors import RltuiError
from rltui.layout.load import LoadedLayout, dump_layout, load_text
from rltui.layout.overrides import parse_override
from rltui.layout.roles import RewardModel, Served
from rltui.layout.schema import Layout
from rltui.memory.layouts import estimate_roles
from rltui.service.launch import launchable

TUNING = frozenset(cause.id for cause in slow.CAUSES)

LEAST_GAIN = 0.1
"""Share of a step that a change has to save: a resubmission costs a start."""

MOST_TRIED, MOST_SHOWN = 12, 2
OVERHEAD = 0.05
"""Share of all time that checkpoints, and evaluations, are brought down to."""

MOST_UTILIZATION = 0.95


class Lever(Struct, frozen=True, kw_only=True):
    """One change of a layout.

    Attributes:
        id: Stable word.
        words: What is changed, from and to.
        changes: The keys with their new values.
        gain: Share of a step's time that it is expected to save; None where the phases do not tell.
        is_of_step: Whether the gain is of a step; else it is of all time, steps and what comes between them.
    """

    id: str
    words: str
    changes: tuple[tuple[str, str], ...]
    gain: float | None = None
    is_of_step: bool = True


class Phases(Struct, frozen=True, kw_only=True):
    """Seconds of a step as measured: generation, training, and what is neither.

    Attributes:
        is_ahead: Whether rollouts run ahead, so that generation overlaps with the rest.
    """

    generate_s: float
    train_s: float
    others_s: float
    is_ahead: bool

    def gain(self, generate: float = 1.0, train: float = 1.0, saved_s: float = 0.0, ahead: bool = False) -> float:
        """Share of a step that is saved where generation and training take these multiples of what they did.

        Args:
            generate: Of generation.
            train: Of training.
            saved_s: Seconds that the rest takes less.
            ahead: Whether rollouts run ahead from now on.
        """
        now_s = self._step_s(self.generate_s, self.train_s, self.others_s, self.is_ahead)
        others_s = max(0.0, self.others_s - saved_s)
        then_s = self._step_s(generate * self.generate_s, train * self.train_s, others_s, ahead or self.is_ahead)
        return 1.0 - then_s / now_s if now_s > 0 else 0.0

    @staticmethod
    def _step_s(generate_s: float, train_s: float, others_s: float, is_ahead: bool) -> float:
        return max(generate_s, train_s + others_s) if is_ahead else generate_s + train_s + others_s


def without_tuning(found: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
    """``found`` without advice on speed where there is an alarm: what looks like head-room may be its symptom."""
    alarm = any(CAUSES[one.id].tier != "aside" and not one.secondary and one.confidence >= SURE_ENOUGH for one in found)
    return tuple(one for one in found if not (alarm and one.id in TUNING))


def advised(found: Sequence[Diagnosis], recent: Recent, loaded: LoadedLayout | None) -> tuple[Diagnosis, ...]:
    """``found`` with the changes that help, before what else there is to do; none where there is no layout."""
    if loaded is None:
        return tuple(found)
    return tuple(_with_levers(one, recent, loaded.layout) for one in found)


def _with_levers(one: Diagnosis, recent: Recent, layout: Layout) -> Diagnosis:
    levers = LEVERS.get(one.id)
    if levers is None:
        return one
    tried = sorted(levers(layout, recent), key=lambda lever: -(lever.gain or 0.0))
    worth = [lever for lever in tried if lever.gain is None or lever.gain >= LEAST_GAIN][:MOST_TRIED]
    valid: dict[str, Lever] = {}
    for lever in worth:
        if lever.id not in valid and len(valid) < MOST_SHOWN and is_sound(layout, lever):
            valid[lever.id] = lever
    total_s = recent.total_s or 0.0
    return structs.replace(one, remedies=(*(_remedy(lever, total_s) for lever in valid.values()), *one.remedies))


def is_sound(layout: Layout, lever: Lever) -> bool:
    """Whether the changed layout can be launched, and no rule warns of anything that it does not warn of now."""
    text, words = dump_layout(layout), [f"{key}={value}" for key, value in lever.changes]
    before, after = check_text(text, layout.name), check_text(text, layout.name, words)
    if not after.ok or not launchable(after).ok:
        return False
    known = {finding.code for finding in before.findings}
    return all(finding.code in known for finding in after.findings if finding.severity != "note")


def _remedy(lever: Lever, total_s: float) -> Remedy:
    said = ""
    if lever.gain is not None and not lever.is_of_step:
        said = f": the same steps take about {100 * lever.gain:.0f} % less time"
    elif lever.gain is not None:
        less = total_s * (1.0 - lever.gain)
        said = f": a step takes about {less:.3g} instead of {total_s:.3g} s (−{100 * lever.gain:.0f} %)"
    changes = tuple(Change(key, "set", _plain(f"{key}={value}")) for key, value in lever.changes)
    return Remedy(id=lever.id, summary=f"{lever.words}{said}.", changes=changes, safe="confirm")


def _plain(word: str) -> bool | int | float | str:
    """The value of an override; a list stays as it is written."""
    _, value = parse_override(word)
    return value if isinstance(value, bool | int | float) else word.partition("=")[2]


def phases_of(layout: Layout, recent: Recent) -> Phases | None:
    """What the phases say of a step; None where they do not."""
    total_s, idle, is_ahead = recent.total_s, recent.idle("engine"), layout.train.async_steps > 0
    if total_s is None:
        return None
    waits_s, train_s = recent.seconds(*GENERATION), recent.seconds(*LEARNER_WORK)
    # of engines that run ahead, the loop sees the end only
    generate_s = total_s * (1.0 - idle) if is_ahead and idle is not None else waits_s
    others_s = max(0.0, total_s - waits_s - train_s)
    return Phases(generate_s=generate_s, train_s=train_s, others_s=others_s, is_ahead=is_ahead)


def _balance(layout: Layout, recent: Recent) -> Iterator[Lever]:
    """GPUs from one side to the other, and rollouts that run ahead: whatever brings the two sides to one pace."""
    yield from _ahead(layout, recent)
    phases, learner, rollout = phases_of(layout, recent), layout.roles.learner, layout.roles.rollout
    if phases is None or learner.pool or rollout.pool or not rollout.engines:
        return
    width, gpus, engines = rollout.tensor_parallel, learner.num_learners, rollout.engines
    for more in (number for number in range(1 - engines, gpus) if number):
        bundles = _bundles(layout, gpus - more * width)
        if not bundles:
            continue
        yield Lever(
            id="move-gpus",
            words=f"Learner GPUs {gpus} → {sum(bundles)}, engines {engines} → {engines + more}",
            changes=(
                ("roles.learner.gpus", f"[{', '.join(map(str, bundles))}]"),
                ("roles.rollout.engines", str(engines + more)),
            ),
            gain=phases.gain(engines / (engines + more), gpus / sum(bundles)),
        )


def _bundles(layout: Layout, wanted: int) -> list[int]:
    """The learner's bundles with ``wanted`` GPUs in all; those that are there grow or shrink, the last ones first."""
    bundles, room = list(layout.roles.learner.gpus), layout.hardware_of("learner").ray_gpus_per_node
    while sum(bundles) > max(wanted, 0):
        surplus = sum(bundles) - wanted
        bundles[-1] -= min(surplus, bundles[-1])
        bundles = [each for each in bundles if each]
    for place in reversed(range(len(bundles))):
        bundles[place] += max(0, min(wanted - sum(bundles), room - bundles[place]))
    while bundles and sum(bundles) < wanted:
        bundles.append(min(room, wanted - sum(bundles)))
    return bundles


def _ahead(layout: Layout, recent: Recent) -> Iterator[Lever]:
    phases, rollout = phases_of(layout, recent), layout.roles.rollout
    if phases is None or phases.is_ahead or rollout.pool:
        return
    yield Lever(
        id="run-ahead",
        words="async_steps 0 → 1, so that generation overlaps with the rest (samples are then one step old)",
        changes=(("train.async_steps", "1"),),
        gain=phases.gain(ahead=True),
    )


def _generation(layout: Layout, recent: Recent) -> Iterator[Lever]:
    yield from _balance(layout, recent)
    slots, busy = layout.roles.rollout.max_concurrency, recent.late("engine_occupancy")
    if slots and busy is not None and busy >= 0.9 and layout.train.samples_per_step > slots * layout.num_engines:
        at_most = layout.train.samples_per_step / layout.num_engines
        yield Lever(
            id="more-concurrency",
            words=f"max_concurrency {slots} → {2 * slots}, as {100 * busy:.0f} % of the slots are in use",
            changes=(("roles.rollout.max_concurrency", str(2 * slots)),),
            gain=_of_more_at_once(recent, (layout, layout), (slots * busy, min(2 * slots * busy, at_most))),
        )


def _training(layout: Layout, recent: Recent) -> Iterator[Lever]:
    yield from _balance(layout, recent)
    yield from _larger_batches(layout, "learner", layout.roles.learner.micro_batch)


def _critic(layout: Layout, recent: Recent) -> Iterator[Lever]:  # noqa: ARG001
    if layout.roles.critic is not None:
        yield from _larger_batches(layout, "critic", layout.roles.critic.micro_batch)


def _larger_batches(layout: Layout, role: str, micro_batch: int) -> Iterator[Lever]:
    if 0 < 2 * micro_batch <= layout.train.samples_per_step // max(1, layout.slots_of(role)):
        yield Lever(
            id="larger-micro-batch",
            words=f"{role.capitalize()}'s micro_batch {micro_batch} → {2 * micro_batch}, for which there is memory",
            changes=((f"roles.{role}.micro_batch", str(2 * micro_batch)),),
        )


def _rewards(layout: Layout, recent: Recent) -> Iterator[Lever]:
    yield from _ahead(layout, recent)
    for name in ("judge", "reward_model"):
        yield from _more_served(layout, recent, name, "time/reward")
    phases, workers = phases_of(layout, recent), layout.num_reward_workers
    if phases is None or not workers:
        return
    for more in (4 * workers, 2 * workers):
        saved_s = recent.seconds("time/reward") * (1.0 - workers / more)
        yield Lever(
            id="more-reward-workers",
            words=f"Reward workers {workers} → {more}",
            changes=(("roles.reward.workers", str(more)),),
            gain=phases.gain(saved_s=saved_s),
        )


def _teacher(layout: Layout, recent: Recent) -> Iterator[Lever]:
    yield from _ahead(layout, recent)
    yield from _more_served(layout, recent, "teacher", "time/teacher")


def _more_served(layout: Layout, recent: Recent, name: str, wait: str) -> Iterator[Lever]:
    """More engines of a teacher or judge that the step waits for, on free cards or on those of rollout engines."""
    phases, rollout = phases_of(layout, recent), layout.roles.rollout
    served: Served | RewardModel | None = getattr(layout.roles, name)
    if phases is None or served is None or served.pool:
        return
    for more in range(1, 1 + max(1, rollout.engines)):
        number = served.engines + more
        left = rollout.engines - -(-more * served.tensor_parallel // rollout.tensor_parallel)
        saved_s = recent.seconds(wait) * (1.0 - served.engines / number)
        key = (f"roles.{name}.engines", str(number))
        words = f"{name.capitalize()}'s engines {served.engines} → {number}"
        yield Lever(id=f"more-{name}s", words=words, changes=(key,), gain=phases.gain(saved_s=saved_s))
        if left > 0 and not rollout.pool:
            yield Lever(
                id=f"more-{name}s",
                words=f"{words}, the policy's {rollout.engines} → {left}",
                changes=(key, ("roles.rollout.engines", str(left))),
                gain=phases.gain(rollout.engines / left, saved_s=saved_s),
            )


def _hand_over(layout: Layout, recent: Recent) -> Iterator[Lever]:  # noqa: ARG001
    train = layout.train
    if train.async_steps and not train.inflight_updates:
        yield Lever(
            id="weights-in-flight",
            words="inflight_updates off → on, so that engines take weights without ending their samples first",
            changes=(("train.inflight_updates", "true"),),
        )


def _cache(layout: Layout, recent: Recent) -> Iterator[Lever]:
    rollout = layout.roles.rollout
    share = min(MOST_UTILIZATION, round(rollout.memory_utilization + 0.05, 2))
    words = {}
    if share > rollout.memory_utilization:
        words[f"memory_utilization={share:g}"] = f"memory_utilization {rollout.memory_utilization:g} → {share:g}"
    if rollout.kv_cache_dtype == "auto":
        words["kv_cache_dtype=fp8"] = "kv_cache_dtype auto → fp8, in which log-probabilities are a little off"
    for word, said in words.items():
        key, _, value = word.partition("=")
        change = (f"roles.rollout.{key}", value)
        yield Lever(
            id=f"more-cache-by-{key}", words=said, changes=(change,), gain=_of_more_cache(layout, recent, change)
        )
    running = [one.running for one in recent.engines if one.running]
    fits = math.floor(min(running)) if running else 0
    if 0 < fits < (rollout.max_concurrency or math.inf):
        yield Lever(
            id="fewer-at-once",
            words=f"max_concurrency {rollout.max_concurrency or 'of the engine'} → {fits}, which the cache holds",
            changes=(("roles.rollout.max_concurrency", str(fits)),),
        )


def _of_more_cache(layout: Layout, recent: Recent, change: tuple[str, str]) -> float | None:
    """As ``_of_more_at_once``, of what a cache that ``change`` makes larger holds of the requests that wait."""
    running, waiting = _in_flight(recent)
    changed = load_text(dump_layout(layout), layout.name, ["=".join(change)]).layout
    before, after = (_cache_tokens(one) for one in (layout, changed))
    if not before or not after:
        return None
    return _of_more_at_once(recent, (layout, changed), (running, min(running * after / before, running + waiting)))


def _of_more_at_once(recent: Recent, layouts: tuple[Layout, Layout], sequences: tuple[float, float]) -> float | None:
    """Share of a step that is saved where each engine runs more sequences at once; None where that is not known.

    A step of decoding takes less than in proportion to its sequences, as they share the reading of the weights.

    Args:
        recent: The last steps.
        layouts: The layout now and then.
        sequences: How many run in an engine now and then.
    """
    from rltui.plan.decoding import decode_step
    from rltui.plan.of_layout import request_of_layout

    phases, width = phases_of(layouts[0], recent), layouts[0].roles.rollout.tensor_parallel
    if phases is None or not min(sequences):
        return None
    try:
        requests = [request_of_layout(layout) for layout in layouts]
    except RltuiError:
        return None
    now_s, then_s = (
        decode_step(request, width, count).step_s / count for request, count in zip(requests, sequences, strict=True)
    )
    return phases.gain(then_s / now_s)


def _in_flight(recent: Recent) -> tuple[float, float]:
    """Requests that run in an engine and that wait there, the mean of all engines."""
    if recent.engines:
        counts = len(recent.engines)
        return sum(one.running for one in recent.engines) / counts, sum(one.waiting for one in recent.engines) / counts
    return recent.late("engine_running") or 0.0, recent.late("engine_waiting") or 0.0


def _cache_tokens(layout: Layout) -> int | None:
    """Tokens that the cache of a rollout engine holds, as estimated."""
    return next((engine.kv_tokens for engine in estimate_roles(layout).engines if engine.role == "rollout"), None)


def _saving(layout: Layout, recent: Recent) -> Iterator[Lever]:
    yield from _less_often(recent, "time/saving", "checkpoint.every", layout.checkpoint.every)


def _evaluating(layout: Layout, recent: Recent) -> Iterator[Lever]:
    yield from _less_often(recent, "time/evaluate", "data.eval_every", layout.data.eval_every)


def _less_often(recent: Recent, phase: str, key: str, every: int) -> Iterator[Lever]:
    share, _ = recent.spent(phase)
    if not every or share <= OVERHEAD:
        return
    rarely = math.ceil(every * share * (1.0 - OVERHEAD) / ((1.0 - share) * OVERHEAD))
    saved = share * (1.0 - every / rarely)
    yield Lever(
        id="less-often", words=f"{key} {every} → {rarely}", changes=((key, str(rarely)),), gain=saved, is_of_step=False
    )


LEVERS: dict[str, Callable[[Layout, Recent], Iterable[Lever]]] = {
    "rollout_bound": _generation,
    "long_tail": _ahead,
    "learner_bound": _training,
    "teacher_bound": _teacher,
    "critic_bound": _critic,
    "reward_bound": _rewards,
    "weight_sync_slow": _hand_over,
    "kv_bound": _cache,
    "save_overhead": _saving,
    "evaluation_overhead": _evaluating,
}
"""Cause → the changes that may help."""
