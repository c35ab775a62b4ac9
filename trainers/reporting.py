"""Tells a finished step to everyone who listens: metrics.jsonl, W&B, the status endpoint, the stage and the log."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence

from trainers.checkpoint import TrainingState
from trainers.memory_log import MemoryLog
from trainers.metrics import MetricsLog
from trainers.roles.fleet import Fleet
from trainers.session import Session
from trainers.weight_sync import WeightSync

MEMORY_INTERVAL_S = 10.0
NEVER_ENDING_STEPS = 3
"""First steps in a row all of whose answers were cut after which the run is suspected to know no right end token."""
BOARD_METRICS = (
    "parity_max_abs",
    "zero_std_fraction",
    "truncated_fraction",
    "staleness_mean",
    "staleness_max",
    "time/engine_idle",
    "time/learner_idle",
    "time/weight_sync",
)

log = logging.getLogger("trainers")


class Reporter:
    """Reports steps of a session.

    Args:
        session: The attempt.
        fleet: The roles.
        weights: Knows what each engine has.
    """

    def __init__(self, session: Session, fleet: Fleet, weights: WeightSync) -> None:
        self._session, self._fleet, self._weights = session, fleet, weights
        self._log = MetricsLog(str(session.attempt), session.layout.train.steps, session.tracker)
        self._engine_memory_gib, self._asked = 0.0, -math.inf
        self._endless_steps = 0
        self._memory = MemoryLog(str(session.attempt), session.layout, fleet)

    def report(self, state: TrainingState, metrics: dict[str, float], memory_gib: Sequence[float]) -> None:
        """Report the step that led to ``state``, with the memory of each learner rank."""
        session = self._session
        self._memory.update()
        self._warn_of_endless_answers(metrics)
        memory = {"engine_memory_gib": self._engine_memory()}
        self._log.record(state.step, {**metrics, **memory, "weight_version": state.weight_version})
        session.stages.show("training", step=state.step, progress=state.step / session.layout.train.steps)
        session.board.update(
            step=state.step,
            should_stop=session.stop.requested,
            learner_weight_version=state.weight_version,
            weight_versions=dict(self._weights.versions),
            ranks=[
                {
                    "rank": rank,
                    "pid": role.pid,
                    "host": role.host,
                    "resident_gib": round(memory, 3),
                    **self._memory.now(role.name),
                }
                for rank, (role, memory) in enumerate(zip(self._fleet.learners, memory_gib, strict=True))
            ],
            **{name: metrics[name] for name in BOARD_METRICS if name in metrics},
        )

    def _warn_of_endless_answers(self, metrics: Mapping[str, float]) -> None:
        """Say once that no answer has ended by itself since the attempt began: most likely none can."""
        if metrics.get("truncated_fraction", 0.0) < 1.0:
            self._endless_steps = NEVER_ENDING_STEPS + 1
        self._endless_steps += 1
        if self._endless_steps == NEVER_ENDING_STEPS:
            text = (
                f"no answer of the first {NEVER_ENDING_STEPS} steps ended before lengths.response: if the model ends "
                "its turns with another token than its configuration says, name it in train.stop; otherwise raise "
                "lengths.response"
            )
            self._session.event("data", text)
            log.warning(text)

    def note(self, step: int, metrics: Mapping[str, float]) -> None:
        """Report metrics that no step of this attempt brought, such as those of the evaluation before the first."""
        if metrics:
            self._log.write(step, metrics)

    def close(self) -> None:
        """Write what is told at the end of a run."""
        self._log.close()
        self._memory.close()

    def _engine_memory(self) -> float:
        """Memory of the largest engine in GiB, asked for at most every ``MEMORY_INTERVAL_S``."""
        if time.monotonic() - self._asked > MEMORY_INTERVAL_S:
            self._engine_memory_gib = self._fleet.engine_memory.largest_gib(self._fleet.engines)
            self._asked = time.monotonic()
        return self._engine_memory_gib
