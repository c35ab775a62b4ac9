"""Now and then, has a run's numbers looked at for what goes wrong silently, so that its events say it at night too.

The rules are no standard library: they run as a short program of their own (``rltui/service/symptoms.py``).
"""

import os
import subprocess
import sys
import time
from typing import Dict, Optional

from rltui.onnode import progress, rundir

EVERY_S = 600.0
"""Between two looks; what a look costs, a third of a second of one core, then goes unnoticed."""

NICENESS = 10


class SymptomWatch:
    """Looks after one attempt, where its Python has what the rules need."""

    def __init__(self, attempt: str) -> None:
        self._attempt = attempt
        self._looked_at = time.monotonic()
        self._changed_at = 0.0
        self._look: "Optional[subprocess.Popen[bytes]]" = None

    def tick(self, environment: Dict[str, str]) -> None:
        """Begin a look, if it is time for one and steps have come since the last."""
        # asked at every tick: one that has ended stays a zombie until then, which samplers would tell of
        ended = 0 if self._look is None else self._look.poll()
        is_due = time.monotonic() - self._looked_at >= EVERY_S * progress.scale()
        if not is_due or ended != 0:
            return  # one that still looks, or that could not: without its packages no other one can
        self._looked_at = time.monotonic()
        changed_at = rundir.written_at(os.path.join(self._attempt, rundir.METRICS))
        if changed_at > self._changed_at:
            self._changed_at = changed_at
            argv = [sys.executable, "-m", "rltui.service.symptoms", self._attempt]
            quiet = subprocess.DEVNULL
            self._look = subprocess.Popen(
                argv, stdin=quiet, stdout=quiet, stderr=quiet, env=environment, start_new_session=True
            )
