"""How often engines that die are started again before the attempt fails instead."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainers.roles.calls import RoleDiedError

LIMIT = 3
WINDOW_S = 3600.0


class Restarts:
    """Grants at most ``LIMIT`` restarts of engines within ``WINDOW_S``.

    An engine that is killed now and then costs a minute; one that dies again and again has a cause that a restart does
    not mend, and the GPUs wait in vain.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._granted: deque[float] = deque()

    def grant(self, error: RoleDiedError) -> str:
        """Count a restart after ``error``; returns what to tell people of it.

        Raises:
            RoleDiedError: ``error``, where that would be one too many.
        """
        now = self._clock()
        while self._granted and now - self._granted[0] > WINDOW_S:
            self._granted.popleft()
        if len(self._granted) >= LIMIT:
            raise error
        self._granted.append(now)
        return f"{error}; starting it again ({len(self._granted)} of {LIMIT} restarts within an hour)"
