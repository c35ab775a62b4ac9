"""Where the attempt stands, told to ``stage.json`` often enough to be live and seldom enough to cost nothing."""

from __future__ import annotations

import time
from typing import Any

from rltui.onnode import rundir
from trainers.full_disk import unless_full

INTERVAL_S = 0.5


class Stages:
    """Writes ``stage.json``: a change of stage at once, a change within a stage at most every ``INTERVAL_S``.

    Args:
        attempt: The attempt's directory.
        steps: Training steps of the run.
    """

    def __init__(self, attempt: str, steps: int) -> None:
        self._attempt, self._steps = attempt, steps
        self._stage = ""
        self._written = 0.0
        self._pending: dict[str, Any] | None = None

    def show(
        self,
        stage: str,
        detail: str = "",
        *,
        step: int | None = None,
        progress: float | None = None,
        roles: dict[str, str] | None = None,
    ) -> None:
        """Record where the attempt stands; the arguments are those of ``rundir.write_stage``."""
        self._pending = {"stage": stage, "detail": detail, "step": step, "progress": progress, "roles": roles}
        if stage != self._stage or time.monotonic() - self._written >= INTERVAL_S:
            self.flush()

    def flush(self) -> None:
        """Write what was held back."""
        if self._pending is None:
            return
        with unless_full():
            rundir.write_stage(self._attempt, steps=self._steps, **self._pending)
        self._stage, self._written, self._pending = self._pending["stage"], time.monotonic(), None
