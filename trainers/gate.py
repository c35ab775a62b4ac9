"""When feeders may call their engines: not while the loop needs the engines for itself, nor a dead engine."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from trainers.queues import QueueClosedError
from trainers.roles.calls import POLL_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainers.roles.calls import RoleDiedError


class Gate:
    """Lets one feeder for each lane through, keeps their times, and remembers whose engine died.

    Args:
        lanes: Number of feeders.
    """

    def __init__(self, lanes: int) -> None:
        self._changed = threading.Condition()
        self._held = self._closed = False
        self._since: dict[int, float] = {}
        self._busy_s = [0.0] * lanes
        self._failures: dict[int, RoleDiedError] = {}

    @contextlib.contextmanager
    def passing(self, lane: int) -> Iterator[None]:
        """Wait until the way is free; until the end of the block, the engine of ``lane`` is at work.

        Raises:
            QueueClosedError: The gate was closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._held)
            self._raise_if_closed()
            self._since[lane] = time.monotonic()
        try:
            yield
        finally:
            with self._changed:
                self._busy_s[lane] += time.monotonic() - self._since.pop(lane)
                self._changed.notify_all()

    def await_repair(self, lane: int, error: RoleDiedError) -> None:
        """Report that the engine of ``lane`` died, and wait until ``mend``, unless another runs in its place already.

        Raises:
            QueueClosedError: The gate was closed.
        """
        with self._changed:
            if error.role.actor is not error.actor:
                return
            self._failures[lane] = error
            self._changed.wait_for(lambda: self._closed or lane not in self._failures)
            self._raise_if_closed()

    @property
    def failures(self) -> list[RoleDiedError]:
        """The deaths of engines that were reported and not mended."""
        with self._changed:
            return list(self._failures.values())

    def mend(self) -> None:
        """Let those go on whose engine runs again."""
        with self._changed:
            self._failures = {lane: error for lane, error in self._failures.items() if error.role.actor is error.actor}
            self._changed.notify_all()

    @contextlib.contextmanager
    def held(self, check: Callable[[], None]) -> Iterator[None]:
        """Hold all feeders and wait until no engine is at work; what ran runs to its end, what comes waits.

        Args:
            check: Called at least every ``POLL_S``; what it raises ends the wait.
        """
        with self._changed:
            self._held = True
        try:
            while not self._is_quiet():
                check()
            yield
        finally:
            with self._changed:
                self._held = False
                self._changed.notify_all()

    def busy_s(self) -> list[float]:
        """Seconds that each lane's engine was at work so far."""
        now = time.monotonic()
        with self._changed:
            return [done + now - self._since.get(lane, now) for lane, done in enumerate(self._busy_s)]

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _is_quiet(self) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._since, POLL_S)

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise QueueClosedError
