"""Which prompt goes to which engine, and when: as slots free up, unless the loop needs the engines for itself."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from trainers.roles.calls import POLL_S, RoleDiedError


class DispatchClosedError(RuntimeError):
    """Nobody asks engines for anything any more."""


class Sized(Protocol):
    """A prompt as far as it is dealt with here: ``samples`` are asked of it."""

    @property
    def samples(self) -> int:
        """Samples that are drawn for it: what it takes of an engine's slots."""


Item = TypeVar("Item", bound=Sized)


class Dispatch(Generic[Item]):
    """One queue of prompts for all engines, and what each of them has under way.

    An engine takes prompts until it has its equal share of all that is to be done, as many as it may hold at most. What
    no engine has room for in its share goes to the one with the least to do, if that has a free slot.

    Args:
        engines: How many there are.
        slots: Samples that an engine works on at once.
        spare: Samples that may wait in it besides; it asks for more when half of them are left.
    """

    def __init__(self, engines: int, slots: int, spare: int = 0) -> None:
        self._changed = threading.Condition()
        self._slots, self._most, self._low = slots, slots + spare, slots + spare // 2
        self._waiting: deque[Item] = deque()
        self._under_way: list[list[Item]] = [[] for _ in range(engines)]
        self._left = [0] * engines
        self._held = self._closed = False
        self._since: dict[int, float] = {}
        self._busy_s = [0.0] * engines
        self._failures: dict[int, RoleDiedError] = {}

    def put(self, items: Sequence[Item], *, first: bool = False) -> None:
        """Have ``items`` done, before all that wait if ``first``."""
        with self._changed:
            if first:
                self._waiting.extendleft(reversed(items))
            else:
                self._waiting.extend(items)
            self._changed.notify_all()

    def take(self, engine: int) -> tuple[list[Item], int]:
        """Wait until ``engine`` has something to do; what it has to do besides what it has under way.

        Returns:
            Further prompts; and how few samples it may have left before it asks again, 0: until any prompt is done.

        Raises:
            DispatchClosedError: The dispatch was closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._under_way[engine] or self._may_take(engine))
            self._raise_if_closed()
            own, new = self._under_way[engine], []
            while self._may_take(engine):
                new.append(self._waiting.popleft())
                own.append(new[-1])
                self._left[engine] += new[-1].samples
            self._since.setdefault(engine, time.monotonic())
            return new, min(self._left[engine] - 1, self._low) if self._waiting and not self._held else 0

    def done(self, engine: int, items: Collection[Item], left: int = 0) -> None:
        """``engine`` has done ``items``, and has ``left`` samples of others under way."""
        with self._changed:
            self._left[engine] = left
            self._under_way[engine] = [item for item in self._under_way[engine] if item not in items]
            self._rest_if_idle(engine)
            self._changed.notify_all()

    def _may_take(self, engine: int) -> bool:
        if self._held or not self._waiting or engine in self._failures:
            return False
        own = self._left[engine]
        everything = _samples(self._waiting) + sum(self._left)
        running = [left for other, left in enumerate(self._left) if other not in self._failures]
        # no engine takes more than its share: at the end of a batch, one with many long answers would keep all others
        # idle
        share = -(-everything // len(running))
        if own == 0 or own + self._waiting[0].samples <= min(share, self._most):
            return True
        return own < self._slots and own == min(running)

    def _rest_if_idle(self, engine: int) -> None:
        if not self._under_way[engine] and engine in self._since:
            self._busy_s[engine] += time.monotonic() - self._since.pop(engine)

    @property
    def waiting(self) -> int:
        """Prompts that no engine has yet."""
        with self._changed:
            return len(self._waiting)

    def await_repair(self, engine: int, error: RoleDiedError) -> None:
        """Report that ``engine`` died, and wait until ``mend``, unless another runs in its place already.

        What it had under way goes to whoever has room first.

        Raises:
            DispatchClosedError: The dispatch was closed.
        """
        with self._changed:
            lost, self._under_way[engine], self._left[engine] = self._under_way[engine], [], 0
            self._rest_if_idle(engine)
            # they waited longest, and the step that is collected waits for them
            self._waiting.extendleft(reversed(lost))
            if error.role.actor is error.actor:
                self._failures[engine] = error
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or engine not in self._failures)
            self._raise_if_closed()

    @property
    def failures(self) -> list[RoleDiedError]:
        """The deaths of engines that were reported and not mended."""
        with self._changed:
            return list(self._failures.values())

    def mend(self) -> None:
        """Let those go on whose engine runs again."""
        with self._changed:
            self._failures = {
                engine: error for engine, error in self._failures.items() if error.role.actor is error.actor
            }
            self._changed.notify_all()

    @contextlib.contextmanager
    def held(self, check: Callable[[], None]) -> Iterator[None]:
        """Hand out nothing, and wait until no engine has anything under way.

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
        """Seconds that each engine had something under way so far."""
        now = time.monotonic()
        with self._changed:
            return [done + now - self._since.get(engine, now) for engine, done in enumerate(self._busy_s)]

    def close(self) -> None:
        """End the feeders' waits, who then give up; prompts that wait are dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _is_quiet(self) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not any(self._under_way), POLL_S)

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise DispatchClosedError


def _samples(items: Collection[Sized]) -> int:
    return sum(item.samples for item in items)
