"""Has an attempt that stands still looked at once, on every node, and tells people of it and for whom the others wait.

What reads the evidence is no standard library: it is a short program of its own (``rltui/service/awaited.py``).
"""

import contextlib
import sys
import time
from typing import Callable, Dict, List

from rltui.onnode import evidence, processes, progress, rundir

NAMING_S = 60.0
"""How long the program that reads the evidence may take."""

JUMP_S = 5.0
"""A wall clock that moves by more than this beside the time between two looks was set, or the machine slept."""


class StandstillWatch:
    """Looks after one attempt.

    Args:
        attempt: The attempt's directory.
        tell: Tells people of a kind of event, with words that may take their time.
    """

    def __init__(self, attempt: str, tell: Callable[[str, Callable[[], str]], None]) -> None:
        self._attempt, self._tell = attempt, tell
        self._asked, self._until, self._is_told = "", 0.0, False
        self._from_s, self._began = 0.0, time.time() - time.monotonic()

    def look(self, environment: Dict[str, str]) -> str:
        """Why the attempt stands still, once the evidence of that is there or will not come any more; else empty."""
        # files tell the time of the wall clock, which also goes on while the machine sleeps, unlike the run
        began = time.time() - time.monotonic()
        if abs(began - self._began) > JUMP_S * progress.scale():
            self._from_s = time.time()
        self._began = began
        standstill = progress.standstill(self._attempt, from_s=self._from_s)
        if not standstill:
            self._asked = ""
            return ""
        # a disk that is full takes no steps down either: that none is seen then says nothing of the training
        with contextlib.suppress(OSError):
            if self._has_evidence(standstill):
                if not self._is_told:
                    self._is_told = True
                    self._tell("stalled", lambda: "\n".join([standstill, *self._awaited(environment)]))
                return standstill
        return ""

    def _has_evidence(self, standstill: str) -> bool:
        """Ask for evidence once a standstill; returns whether it is there, or will not come any more."""
        if not self._asked:
            asked = evidence.ask(self._attempt, standstill)
            rundir.log_event(self._attempt, "evidence", "%s; evidence is taken on every node" % standstill)
            self._asked, self._until, self._is_told = asked, time.monotonic() + evidence.ANSWER_S, False
        return evidence.is_answered(self._attempt, self._asked) or time.monotonic() > self._until

    def _awaited(self, environment: Dict[str, str]) -> List[str]:
        """For whom the others wait, a line each; none where nobody can tell, or this Python lacks what reads it."""
        # it is no part of what is ended with the attempt, which may be right now
        known = {name: value for name, value in environment.items() if name != rundir.ATTEMPT_VARIABLE}
        argv = [sys.executable, "-m", "rltui.service.awaited", self._attempt]
        return (processes.said_by(argv, NAMING_S, known or None) or "").splitlines()
