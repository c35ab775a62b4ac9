"""Where a run's time went: queues, start-up, steps that count, steps that were done again, and what each loss cost.

Pure: the facts are those of the attempts' files and of the lines of their metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from msgspec import structs

from rltui.onnode import rundir
from rltui.onnode.allocation import PREEMPTION, REQUEUE
from rltui.watch.run_facts import AttemptFacts, RunFacts
from rltui.watch.snapshots import AttemptHistory, EndSnapshot, RunHistory

CPU = "cpu"
HOUR_S = 3600.0

AGAIN = "done-again"
"""The cause of steps that were done again although their attempt had come to its end."""

_BY_SLURM = {PREEMPTION: "slurm_preempted", REQUEUE: "requeued"}
"""Causes of ends that nobody who has to do with the run wanted, by Slurm's word; ``cancelled`` is no cause of these."""

_KEPT, _OVERHEAD, _UNDER_WAY = "kept", "overhead", "under way"


class StepTime(NamedTuple):
    """When a step ended, epoch seconds, and how long it took; None where its line does not say."""

    at: float | None
    took_s: float | None


class StepTimes:
    """The times of a run's steps, kept while its metrics are read.

    Attributes:
        by_attempt: By the attempt's number and the step; of a step with several lines, the first.
        count: Lines so far.
    """

    def __init__(self) -> None:
        self.by_attempt: dict[int, dict[int, StepTime]] = {}
        self.count = 0

    def add(self, attempt: int, step: int, values: Mapping[str, float]) -> None:
        """Add one line of metrics."""
        self.count += 1
        time = StepTime(values.get("time"), values.get("time/total"))
        self.by_attempt.setdefault(attempt, {}).setdefault(step, time)


class _Split(NamedTuple):
    """Seconds of an attempt: before, in, between and after its steps; by step, how long each took."""

    start_up_s: float | None
    between_s: float | None
    tail_s: float | None
    took_s: Mapping[int, float | None]


def run_history(
    facts: RunFacts, times: Mapping[int, Mapping[int, StepTime]], now: float, *, is_live: bool
) -> RunHistory:
    """The history of a run.

    Args:
        facts: What the files of its attempts say.
        times: The times of its steps, by attempt and step.
        now: The cluster's clock, epoch seconds.
        is_live: Whether its newest attempt may still be there.
    """
    begun = sorted((one for one in facts.attempts if one.has_begun), key=lambda one: (_start(one), one.number))
    live = facts.newest.number if is_live else None
    first = {number: min(steps) for number, steps in times.items() if steps}
    attempts: list[AttemptHistory] = []
    ended_before: float | None = None
    for place, one in enumerate(begun):
        later = min((first[other.number] for other in begun[place + 1 :] if other.number in first), default=None)
        told = _attempt(one, times.get(one.number, {}), later, now if one.number == live else None)
        held = one.held or facts.record
        each = sum(nodes * gpus for nodes, gpus in held.kinds)
        slots = each or (one.nodes or held.nodes) * (one.gpus_per_node or held.gpus_per_node) or None
        submitted_at = ended_before if one.is_requeued else one.submitted_at
        # the next job of a chain could not start before this one's end, however early it was submitted
        could = submitted_at if submitted_at is None else max(submitted_at, ended_before or 0.0)
        queue_s = _between(could, told.started_at)
        attempts.append(structs.replace(told, slots=slots, submitted_at=submitted_at, queue_s=queue_s))
        ended_before = told.ended_at
    for one in facts.attempts:
        if not one.has_begun:
            waits_s = _between(one.submitted_at, now if one.number == live else None)
            attempts.append(AttemptHistory(number=one.number, submitted_at=one.submitted_at, queue_s=waits_s))
    unit = "CPU slot" if facts.record.gpu == CPU else "GPU"
    return _summed(unit, attempts, {one.number for one in begun}, live)


def _start(one: AttemptFacts) -> float:
    return one.started_at or one.began_at


def _between(start: float | None, end: float | None) -> float | None:
    return max(0.0, end - start) if start is not None and end is not None else None


def _sum(parts: Iterable[float | None]) -> float | None:
    """The sum; None where one part is not known."""
    listed = list(parts)
    return None if None in listed else sum(part for part in listed if part is not None)


def _attempt(
    one: AttemptFacts, times: Mapping[int, StepTime], overtaken_from: int | None, now: float | None
) -> AttemptHistory:
    """One attempt.

    Args:
        one: What its files say.
        times: Of its steps.
        overtaken_from: The earliest step that a later attempt has done; None: none has.
        now: The clock, where it lives.
    """
    ended_at = one.end.at if one.end is not None and one.end.at else None
    until = ended_at if now is None else now
    split = _split(times, one.started_at, one.stage.began("training") if one.stage is not None else None, until)
    if not times and one.is_script and one.stage is not None and one.stage.step:
        split = _Split(None, None, None, {0: None})  # it made steps, and nobody knows when
    lost = {step for step in times if overtaken_from is not None and step >= overtaken_from}
    outcome = one.end.outcome if one.end is not None and now is None else ""
    return AttemptHistory(
        number=one.number,
        outcome=outcome,
        cause=_cause(one.failure or "", one.end) if one.end is not None and outcome not in ("", "finished") else "",
        reason=one.end.reason if one.end is not None and outcome else "",
        exit_code=one.end.exit_code if one.end is not None and outcome else None,
        started_at=one.started_at,
        ended_at=ended_at,
        first_step=min(times, default=None),
        last_step=max(times, default=None),
        steps=len(times),
        overtaken_steps=len(lost),
        held_s=_between(one.started_at, until),
        start_up_s=split.start_up_s,
        kept_s=_sum(took for step, took in split.took_s.items() if step not in lost),
        overtaken_s=_sum(took for step, took in split.took_s.items() if step in lost),
        between_s=split.between_s,
        tail_s=split.tail_s,
    )


def _cause(failure: str, end: EndSnapshot) -> str:
    """Why an attempt did not finish: by its logs, else by what its end says."""
    told = "run_stalled" if end.hung else "slurm_time_limit" if end.outcome == "time-limit" else end.outcome
    return failure or _BY_SLURM.get(end.slurm, told)


def _split(
    times: Mapping[int, StepTime], started_at: float | None, trained_at: float | None, until: float | None
) -> _Split:
    """The time from ``started_at`` to ``until``, cut at the steps; all parts together are all of it."""
    if not times:
        return _Split(_between(started_at, until), 0.0, 0.0, {})
    took: dict[int, float | None] = {}
    before = first = trained_at or started_at
    in_order = sorted(times.items(), key=lambda item: (item[1].at or 0.0, item[0]))
    for step, time in in_order:
        gap = max(0.0, time.at - before) if time.at is not None and before is not None else None
        # no more than since the step before: the times of steps that overlap add up to more than there was
        took[step] = gap if time.took_s is None else time.took_s if gap is None else min(gap, time.took_s)
        before = time.at
    spent, last = _sum(took.values()), in_order[-1][1].at
    if spent is None or last is None or started_at is None or until is None:
        return _Split(None, None, None, took)
    first_at, first_took = in_order[0][1].at, took[in_order[0][0]]
    assert first is not None
    start_up = max(0.0, (first_at or first) - (first_took or 0.0) - started_at)
    tail = max(0.0, until - max(last, started_at))
    return _Split(start_up, max(0.0, until - started_at - start_up - spent - tail), tail, took)


_MEANT = {"cancelled": "being cancelled", "time-limit": "its time limit"}
"""Outcomes that are a cause themselves."""


def loss_words(cause: str) -> str:
    """What a loss is put down to: a cause by its id, or how the attempt ended where nobody knows why."""
    if cause in _MEANT:
        return f"lost by {_MEANT[cause]}"
    return f"lost by unknown cause ({cause})" if cause in rundir.OUTCOMES else f"lost by {cause}"


def _summed(unit: str, attempts: Sequence[AttemptHistory], begun: Set[int], live: int | None) -> RunHistory:
    known = [one for one in attempts if one.slots and None not in _parts(one)]
    waits = [one.queue_s for one in attempts if one.queue_s is not None]
    told = RunHistory(
        unit=unit,
        attempts=tuple(attempts),
        unknown=tuple(one.number for one in attempts if one.number in begun and one not in known),
        queue_s=sum(waits) if waits else None,
    )
    if not known:
        return told
    hours: dict[str, float] = {_KEPT: 0.0, _OVERHEAD: 0.0, _UNDER_WAY: 0.0}
    cause_before = ""
    for one in known:
        for name, part in _charged(one, cause_before, is_live=one.number == live):
            hours[name] = hours.get(name, 0.0) + part * (one.slots or 0) / HOUR_S
        cause_before = one.cause
    held_h = sum(hours.values())
    kept_h, overhead_h, under_way_h = (hours.pop(name) for name in (_KEPT, _OVERHEAD, _UNDER_WAY))
    return structs.replace(
        told,
        held_h=held_h,
        kept_h=kept_h,
        overhead_h=overhead_h,
        under_way_h=under_way_h,
        lost_h=dict(sorted(((name, part) for name, part in hours.items() if part), key=lambda item: -item[1])),
        goodput=kept_h / (held_h - under_way_h) if held_h > under_way_h else None,
    )


def _charged(one: AttemptHistory, cause_before: str, *, is_live: bool) -> Iterator[tuple[str, float]]:
    """What each part of an attempt's seconds counts for: a cause by which it was lost, or one of the three others.

    A start-up is the price of the end before it; of an attempt that never came to a step, of its own.
    """
    start_up, kept, overtaken, between, tail = (part or 0.0 for part in _parts(one))
    after = _UNDER_WAY if is_live else one.cause or _OVERHEAD
    yield (cause_before or _OVERHEAD) if one.steps else after, start_up
    yield _KEPT, kept
    yield one.cause or AGAIN, overtaken
    yield _OVERHEAD, between
    yield after, tail


def _parts(one: AttemptHistory) -> tuple[float | None, ...]:
    return one.start_up_s, one.kept_s, one.overtaken_s, one.between_s, one.tail_s
