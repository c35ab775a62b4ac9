"""A bounded queue with lanes: what prompts wait in on their way to the engines, and samples on their way back."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class QueueClosedError(RuntimeError):
    """Nothing comes any more."""


class BoundedQueue(Generic[Item]):
    """A queue whose items have sizes (in prompts) and whose total size is bounded, with a lane for each taker.

    Attributes:
        maxsize: Most prompts in the queue at once.
    """

    def __init__(self, maxsize: int, lanes: int = 1) -> None:
        self.maxsize = maxsize
        self._lanes: list[deque[tuple[Item, int]]] = [deque() for _ in range(lanes)]
        self._current = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def current(self) -> int:
        """Prompts in the queue."""
        return self._current

    def put(self, item: Item, size: int, lane: int = 0, *, first: bool = False) -> None:
        """Append ``item`` to ``lane``, waiting for room; takers have deadlines, so room comes or the queue is closed.

        ``first``: put it before all that waits in its lane.

        Raises:
            QueueClosedError: The queue was closed.
            ValueError: The item could never fit.
        """
        if size > self.maxsize:
            raise ValueError(f"an item of {size} prompts does not fit a queue of {self.maxsize}")
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._current + size <= self.maxsize)
            self._raise_if_closed()
            (self._lanes[lane].appendleft if first else self._lanes[lane].append)((item, size))
            self._current += size
            self._changed.notify_all()

    def take(self, lane: int = 0, timeout_s: float | None = None) -> Item:
        """Take the oldest item of ``lane``, waiting for one.

        Raises:
            QueueClosedError: The queue was closed.
            TimeoutError: Nothing came within ``timeout_s``.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed or self._lanes[lane], timeout_s):
                raise TimeoutError(f"nothing came within {timeout_s:g} s")
            self._raise_if_closed()
            item, size = self._lanes[lane].popleft()
            self._current -= size
            self._changed.notify_all()
            return item

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise QueueClosedError
