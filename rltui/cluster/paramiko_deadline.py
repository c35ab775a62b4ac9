"""A bound on what paramiko waits for without one: it closes the transport, which ends the wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import paramiko


class Deadline:
    """Closes a transport unless it is lifted in time; the time that a person takes to answer does not count.

    ``Channel.exec_command`` and a send into a link that stands still wait for ever; answers to a keyboard-interactive
    login are given in paramiko's own thread while its time-out for the whole login runs.

    Attributes:
        passed: Whether it has closed the transport.
    """

    def __init__(self, transport: paramiko.Transport, timeout_s: float) -> None:
        self.passed = False
        self._transport = transport
        self._left = timeout_s
        self._lock = threading.Lock()
        self._lifted = False
        self._began = 0.0
        self._timer: threading.Timer | None = None
        self._start()

    def _start(self) -> None:
        with self._lock:
            if self._lifted:
                return
            self._began = time.monotonic()
            self._timer = threading.Timer(max(0.0, self._left), self._pass)
            self._timer.daemon = True
            self._timer.start()

    def _pass(self) -> None:
        with self._lock:
            if self._lifted:
                return
            self.passed = True
        self._transport.close()

    def lift(self) -> None:
        """Let the transport live."""
        with self._lock:
            self._lifted = True
            if self._timer is not None:
                self._timer.cancel()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock for the length of the block."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._left -= time.monotonic() - self._began
        try:
            yield
        finally:
            self._start()


@contextmanager
def closed_after(timeout_s: float, transport: paramiko.Transport) -> Iterator[Deadline]:
    """Close ``transport`` unless the block is done within ``timeout_s``."""
    deadline = Deadline(transport, timeout_s)
    try:
        yield deadline
    finally:
        deadline.lift()
