"""Threads for calls that may block: a poller that reads one source again and again, and one that does single requests.

The threads are our own and neither Textual's workers nor an executor's: a program waits for those when it ends, so one
hung SSH connection would keep the cockpit from quitting.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar


def _start(target: Callable[[], None], name: str, daemon: bool) -> threading.Thread:
    # Messages made in the thread look up the active application in the context of the thread that started it.
    context = contextvars.copy_context()
    thread = threading.Thread(target=lambda: context.run(target), name=name, daemon=daemon)
    thread.start()
    return thread


Target = TypeVar("Target")


class Poller(Generic[Target]):
    """Reads a source in a thread of its own, again after as many seconds as the read returned.

    Args:
        name: Name of the thread.
        read: One read of what the target names, None at first; never raises. None comes back where there is nothing
            to read before there is another target.
    """

    def __init__(self, name: str, read: Callable[[Target | None], float | None]) -> None:
        self._name = name
        self._read = read
        self._target: Target | None = None
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread that reads, the first time at once."""
        self._thread = _start(self._loop, self._name, daemon=True)

    def aim(self, target: Target | None) -> None:
        """Read ``target`` from now on, at once if it is another one."""
        if target != self._target:
            self._target = target
            self._wake.set()

    def hurry(self) -> None:
        """Read again at once, before the interval is over."""
        self._wake.set()

    def stop(self) -> None:
        """Read no more; a read under way is left to its own deadline."""
        self._stopped = True
        self._wake.set()

    def _loop(self) -> None:
        while not self._stopped:
            self._wake.clear()
            target = self._target
            pause_s = self._read(target)
            if target == self._target and not self._stopped:
                self._wake.wait(pause_s)


class RequestThread:
    """Does requests one after the other in a thread of its own, which ends when there is nothing to do.

    Args:
        name: Name of the thread.
        newest_only: A waiting request is dropped when a newer one of its kind comes. Otherwise every request is done,
            and the program waits for it when it ends: an action under way must not be torn.
        may_be_left: The program does not wait for it although every request is done.
    """

    def __init__(self, name: str, newest_only: bool, may_be_left: bool = False) -> None:
        self._name = name
        self._newest_only = newest_only
        self._may_be_left = newest_only or may_be_left
        self._waiting: deque[tuple[str, Callable[[], None]]] = deque()
        self._lock = threading.Lock()
        self._busy = False

    def ask(self, request: Callable[[], None], kind: str = "") -> None:
        """Do ``request``, which never raises, as soon as those before it are done."""
        with self._lock:
            if self._newest_only:
                self._waiting = deque(one for one in self._waiting if one[0] != kind)
            self._waiting.append((kind, request))
            if self._busy:
                return
            self._busy = True
        _start(self._loop, self._name, daemon=self._may_be_left)

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return self._busy

    def _loop(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._busy = False
                    return
                _, request = self._waiting.popleft()
            try:
                request()
            except Exception:  # noqa: BLE001 the edge of a thread: what waits is still to be done
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


def backed_off_s(period_s: float, failures: int, longest_s: float) -> float:
    """``period_s``, doubled for each failure in a row up to ``longest_s``; hours of failures make no number too big."""
    return min(longest_s, period_s * 2.0 ** min(failures, 10))


def timed() -> Callable[[], float]:
    """Start a stopwatch; calling the result gives the seconds since."""
    began = time.monotonic()
    return lambda: time.monotonic() - began
