"""Whether a job needs another one behind it, which may then wait in the queue while this one trains."""

import os
import statistics
import subprocess
import time
from typing import Any, Dict, List, Optional

from rltui.onnode import hands_off, progress, rundir

LEAST_STEPS = 4
"""The first steps compile, and say little of the others."""

MARGIN = 1.1
"""Steps grow longer while answers do."""

LOOK_S = 30.0
AGAIN_S = 600.0
"""When a submission that failed is tried again."""


class QueueAhead:
    """Has the next job submitted as soon as it is clear that one will be needed."""

    def __init__(self, attempt: str) -> None:
        self._attempt = attempt
        self._look_at = 0.0
        self._child: "Optional[subprocess.Popen[bytes]]" = None

    def tick(self, ends_at: Optional[float]) -> None:
        """Look, at times; to be called again and again while the attempt trains.

        Args:
            ends_at: When the trainer is told to save, epoch seconds; None: the job has no time limit.
        """
        if ends_at is None or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_S * progress.scale()
        if self._child is not None:
            if self._child.poll() is None:
                return
            self._look_at = time.monotonic() + AGAIN_S * progress.scale()
            self._child = None
        elif is_wanted(self._attempt) and not has_next(self._attempt) and is_due(self._attempt, ends_at):
            self._child = hands_off.start(self._attempt, ["--ahead"])


def is_wanted(attempt: str) -> bool:
    """Whether the run of the attempt is to have its next job queued while this one runs."""
    return hands_off.is_on(attempt) and hands_off.queues_ahead(attempt)


def is_due(attempt: str, ends_at: float, now: Optional[float] = None) -> bool:
    """Whether the run will not be done when its job ends.

    Of a run that says how many steps there are, the newest steps tell; of any other, that half of the job is over.

    Args:
        attempt: The attempt's directory.
        ends_at: When the trainer is told to save, epoch seconds.
        now: Epoch seconds; None: this moment.
    """
    now = time.time() if now is None else now
    stage = rundir.read_json(os.path.join(attempt, rundir.STAGE)) or {}
    began = _training_since(stage)
    if began is None:
        return False
    step, steps, times = stage.get("step"), stage.get("steps"), progress.step_times(attempt)
    if isinstance(step, int) and isinstance(steps, int) and steps > 0 and len(times) >= LEAST_STEPS:
        # the mean, not the median: what saving and evaluating take between steps counts too
        step_s = statistics.mean(times[i + 1] - times[i] for i in range(len(times) - 1))
        return now + (steps - step) * step_s * MARGIN > ends_at
    return now > began + (ends_at - began) / 2


def has_next(attempt: str) -> bool:
    """Whether an attempt was made after this one, or waits: a start that Slurm makes again has the last number."""
    number, run = int(os.path.basename(os.path.abspath(attempt))), rundir.run_of(attempt)
    numbers = (int(name) for name in os.listdir(os.path.join(run, rundir.ATTEMPTS)) if name.isdigit())
    return max(numbers) > number or bool(waiting(run))


def waiting(run: str) -> List[int]:
    """Numbers of the attempts in the run directory ``run`` whose jobs wait for the one before, ascending."""
    folder = os.path.join(run, rundir.ATTEMPTS)
    return sorted(int(name) for name in os.listdir(folder) if name.isdigit() and _waits(os.path.join(folder, name)))


def _waits(attempt: str) -> bool:
    if any(os.path.exists(os.path.join(attempt, sign)) for sign in (rundir.STAGE, rundir.SUPERVISOR, rundir.END)):
        return False
    job = rundir.read_json(os.path.join(attempt, rundir.JOB)) or {}
    return bool(job.get("after_job")) and "requeue_of" not in job


def _training_since(stage: Dict[str, Any]) -> Optional[float]:
    history: List[Dict[str, Any]] = stage.get("history") or []
    return next((float(entry["at"]) for entry in history if entry.get("stage") == "training"), None)
