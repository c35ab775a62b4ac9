"""Which roles can work at the same time, and for how much of a step engines and learners had nothing to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltui.layout.schema import Layout

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


def concurrent(layout: Layout, kinds: Sequence[str]) -> list[list[str]]:
    """``kinds`` in rounds: roles of one round share no GPU, so they can work at the same time."""
    rounds: list[list[str]] = []
    for kind in kinds:
        home = home_of(layout, kind)
        free = [members for members in rounds if all(home_of(layout, other) != home for other in members)]
        if free:
            free[0].append(kind)
        else:
            rounds.append([kind])
    return rounds


def begins_early(layout: Layout) -> bool:
    """Whether engines get the prompts of a step while the one before it is still reported, evaluated and saved.

    On cards of their own they do so as soon as they have its weights, unless it is still open who answers.
    """
    is_open = layout.algorithm == "opd" and layout.opd.on_policy_fraction < 1.0
    return layout.train.async_steps > 0 or (are_apart(layout) and not is_open)


def are_apart(layout: Layout) -> bool:
    """Whether engines and learners have cards of their own."""
    return home_of(layout, "engine") != home_of(layout, "learner")


def home_of(layout: Layout, kind: str) -> str:
    """The pool that roles of this kind sit in; guests without one are at the learner's, others have their own GPUs."""
    role = layout.roles.rollout if kind == "engine" else getattr(layout.roles, kind)
    if kind in ("reference", "critic") and not role.pool:
        return home_of(layout, "learner")
    return f"pool {role.pool}" if role.pool else kind
