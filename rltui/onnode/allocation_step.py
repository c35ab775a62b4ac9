"""A run as a step of somebody's allocation: how it is asked to end, and what it says when the allocation does."""

import contextlib
import os
import time
from typing import Optional, Tuple

from rltui.onnode import rundir

LOOK_S = 1.0
"""How often the driver looks whether the run is to end."""

IN_TIME_S = 60.0
"""An allocation that ends so shortly before its time limit has reached it: Slurm looks at clocks twice a minute."""


class CancelFile:
    """The file that asks for the end of a run, as no signal of Slurm's reaches the driver alone."""

    def __init__(self, attempt: str) -> None:
        self._attempt = attempt
        self._looked_at = 0.0

    def is_there(self) -> bool:
        """Whether it is; looks at most once in ``LOOK_S``, and says no in between."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return False
        self._looked_at = now
        with contextlib.suppress(OSError):  # away for a moment
            # a look at the folder is what makes network file systems ask again
            return rundir.CANCEL in os.listdir(self._attempt)
        return False


def end_of_allocation(job_id: int, end_at: Optional[float]) -> Tuple[str, str]:
    """Outcome and reason where Slurm ends the allocation, and with it the step, without a word why.

    Args:
        job_id: The allocation.
        end_at: When its time limit ends it, epoch seconds.
    """
    if end_at is not None and time.time() > end_at - IN_TIME_S:
        return "time-limit", "the time limit of job %d, its allocation, was reached" % job_id
    return "cancelled", "job %d, its allocation, was cancelled or ended" % job_id
