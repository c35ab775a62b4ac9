"""How long the phases of a training step take, and for how much of it engines and learners had nothing to do."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from trainers.colocation import are_apart, begins_early
from trainers.data.prompts import Prompt
from trainers.lookahead import StalenessCounter, staleness_metrics
from trainers.metrics import rates
from trainers.roles.completions import Completion
from trainers.roles.fleet import Fleet
from trainers.rollouts import Rollouts
from trainers.session import Session
from trainers.utilization import lengths_of, mfu_meter
from trainers.weight_sync import WeightSync

LEARNER_PHASES = ("measure", "train", "weight_sync")
"""Phases of a step in which learners compute or send weights."""


class Board(Protocol):
    """What shows the phase that a run is in."""

    def enter(self, phase: str) -> None:
        """Show that ``phase`` has begun, and since when."""


class Phases:
    """The phases of a step, whose times do not overlap: what is spent in a phase within another is the inner one's.

    Args:
        board: Where the phase is shown.

    Attributes:
        seconds: Of each phase since the last ``take``; times of a phase that comes again add up.
    """

    def __init__(self, board: Board) -> None:
        self._board, self._outer = board, ""
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Show and time one phase."""
        outer, self._outer = self._outer, name
        self._board.enter(name)
        began = time.monotonic()
        try:
            yield
        finally:
            self._outer = outer
            self.move(time.monotonic() - began, outer, name)
        if outer:
            self._board.enter(outer)

    def move(self, seconds: float, source: str, target: str) -> None:
        """Count ``seconds`` as those of phase ``target`` and not of ``source``; an empty one is none."""
        for name, more in ((source, -seconds), (target, seconds)):
            if name:
                self.seconds[name] = self.seconds.get(name, 0.0) + more

    def take(self) -> dict[str, float]:
        """The seconds of each phase; from here on they are those of the next step."""
        taken, self.seconds = self.seconds, {}
        return taken


class IdleClock:
    """Measures a step from ``begin`` on.

    Args:
        busy_s: Seconds that each engine was at work so far.
        takes_turns: Whether engines and learners share their cards, which then rest only while neither is at work.
    """

    def __init__(self, busy_s: Callable[[], Sequence[float]], *, takes_turns: bool = False) -> None:
        self._busy_s, self._takes_turns = busy_s, takes_turns
        self._taken = list(busy_s())
        self.begin()

    def begin(self) -> None:
        """A step begins: what engines do from here on is its own."""
        self._began, self._before = time.monotonic(), list(self._busy_s())

    def engine_work_s(self) -> float:
        """Seconds since ``begin`` that an engine was at work, the mean over engines."""
        return sum(now - before for now, before in zip(self._busy_s(), self._before, strict=True)) / len(self._before)

    def take_engine_work_s(self) -> float:
        """Seconds since the last call that an engine was at work, the mean over engines; between steps, too."""
        taken, self._taken = self._taken, list(self._busy_s())
        return sum(now - before for now, before in zip(self._taken, taken, strict=True)) / len(taken)

    def measure(self, durations: Mapping[str, float]) -> dict[str, float]:
        """Idle seconds since ``begin``: the mean over engines, and the learners', who work in some phases.

        Args:
            durations: Seconds of each phase.
        """
        total_s, engine_s = time.monotonic() - self._began, self.engine_work_s()
        work_s = sum(durations.get(phase, 0.0) for phase in LEARNER_PHASES)
        if self._takes_turns:
            engine_s = work_s = engine_s + work_s
        return {"time/engine_idle": max(0.0, total_s - engine_s), "time/learner_idle": max(0.0, total_s - work_s)}


class StepMeter:
    """Measures what a step took, from its own phases and from what its parts counted meanwhile.

    Args:
        session: The attempt.
        fleet: The roles.
        rollouts: What keeps the engines full.
        weights: What brings engines to the learners' weights.
        phases: The phases of the step.
        staleness: The age of its samples.
        model_path: Folder of the policy.
    """

    def __init__(
        self,
        session: Session,
        fleet: Fleet,
        rollouts: Rollouts,
        weights: WeightSync,
        phases: Phases,
        staleness: StalenessCounter,
        model_path: str,
    ) -> None:
        self._layout, self._board, self._sleep = session.layout, session.board, fleet.engine_sleep
        self._rollouts, self._weights, self._phases, self._staleness = rollouts, weights, phases, staleness
        self._idle = IdleClock(rollouts.dispatch.busy_s, takes_turns=not are_apart(session.layout))
        self._mfu = mfu_meter(session.layout, model_path)

    def begin(self) -> None:
        """A step begins: what is measured from here on is its own."""
        self._idle.begin()

    def measure(
        self, prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]], total_s: float
    ) -> dict[str, float]:
        """Durations and rates of the step that ends, also told to the status board."""
        lengths = lengths_of(prompts, groups)
        prefill = sum(one.prompt for one in lengths)
        decode = sum(sample.sampled_tokens for group in groups for sample in group)
        durations = {"data": 0.0, **self._phases.take()}
        idle, (ages, mixed) = self._idle.measure(durations), self._staleness.take()
        if self._sleep.is_used:
            durations["wake"] = self._sleep.take_waking_s()
            durations["weight_sync"] -= durations["wake"]
        # samples that were begun before the step cost the loop a short wait, but the engines all of their time
        generate_s = self._idle.take_engine_work_s() if begins_early(self._layout) else durations["generate"]
        self._board.count_step(total_s, generate_s, prefill, decode, sum(map(len, groups)))
        self._board.update(staleness_histogram={str(age): count for age, count in ages.items()})
        found = rates(prefill + decode, total_s, durations, generate_s) | idle | staleness_metrics(ages)
        found["engine_occupancy"] = self._rollouts.take_occupancy()
        found |= self._rollouts.take_slowest() | self._rollouts.take_cache() | self._weights.take_rate()
        if self._layout.train.takes_weights_in_flight:
            found["mixed_versions_fraction"] = mixed
        return found | (self._mfu.measure(lengths, generate_s, durations["train"]) if self._mfu else {})
