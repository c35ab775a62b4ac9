"""Which roles that die are started again, and how often before the attempt fails instead."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection

from rltui.layout.roles import SERVED
from trainers.roles.calls import RoleDiedError

FROZEN = (*SERVED, "reference")
"""Kinds of roles that keep nothing but a model, which never changes."""

LIMIT = 3
WINDOW_S = 3600.0


class Restarts:
    """Grants at most ``LIMIT`` restarts of roles within ``WINDOW_S``.

    A role that is killed now and then costs a minute; one that dies again and again has a cause that a restart does
    not mend, and the GPUs wait in vain.

    Args:
        frozen: Kinds of roles that hold a model that never changes, each role by itself.
        clock: Seconds.
    """

    def __init__(self, frozen: Collection[str] = FROZEN, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._frozen = clock, frozen
        self._granted: deque[float] = deque()

    def grant(self, error: RoleDiedError) -> str:
        """Count a restart after ``error``; returns what to tell people of it.

        Raises:
            RoleDiedError: ``error``, where that would be one too many, or its role is of a kind that is not restarted.
        """
        if error.role.kind != "engine" and error.role.kind not in self._frozen:
            raise error  # what learners and critics hold is in the checkpoints only
        now = self._clock()
        while self._granted and now - self._granted[0] > WINDOW_S:
            self._granted.popleft()
        if len(self._granted) >= LIMIT:
            raise error
        self._granted.append(now)
        return f"{error}; starting it again ({len(self._granted)} of {LIMIT} restarts within an hour)"
