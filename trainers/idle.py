"""For how much of a step engines and learners had nothing to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

LEARNER_PHASES = ("measure", "train", "weight_sync")
"""Phases of a step in which learners compute or send weights."""


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
        """A step begins."""
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
