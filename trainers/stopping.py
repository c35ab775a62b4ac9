"""A request to stop, by signal: what it ends at once, and what it lets finish."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any, NoReturn

PATIENCE_S = 5.0
"""How long a generation may go on after the request; with saving and clean-up an attempt then ends within 15 s."""

EXIT_CODE = 128 + signal.SIGTERM


class StopRequestedError(Exception):
    """A wait was given up because the attempt is to stop."""


class Stop:
    """Remembers SIGTERM (cancel) and SIGUSR2 (Slurm's warning before the time limit)."""

    def __init__(self) -> None:
        self._since: float | None = None

    def install(self) -> None:
        """Take the signals over; again after ``ray.init``, which takes SIGTERM for itself."""
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGUSR2, self._note)

    @property
    def requested(self) -> bool:
        """Whether the attempt is to stop."""
        return self._since is not None

    def check(self) -> None:
        """Raise ``StopRequestedError`` where a stop was requested."""
        if self.requested:
            raise StopRequestedError

    def check_patience(self) -> None:
        """As ``check``, but only when the request is older than ``PATIENCE_S``."""
        if self._since is not None and time.monotonic() - self._since > PATIENCE_S:
            raise StopRequestedError

    def _note(self, number: int, _frame: Any) -> None:
        if self._since is None:
            self._since = time.monotonic()
            # not print: the handler may interrupt one, and Python's buffers refuse to be entered twice
            os.write(2, f"{signal.Signals(number).name}: saving, then ending\n".encode())


def leave(code: int) -> NoReturn:
    """End this process with ``code`` now, without exit handlers: W&B's waits 90 s for a server that does not answer."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
