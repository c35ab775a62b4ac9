"""How an engine that samples lets new weights in between two decoding steps."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class ModelLock:
    """One thread samples, another brings weights; only one of them has the model.

    A plain lock would not do: who samples lets go of it for no time at all, and who waits would hardly ever get it.
    """

    def __init__(self) -> None:
        self._model = threading.Lock()
        self._changed = threading.Condition()
        self._waiting = 0

    @contextlib.contextmanager
    def sampling(self) -> Iterator[None]:
        """The block has the model, but for the moments in which it gives way."""
        with self._model:
            yield

    def give_way(self, fit: Callable[[], bool]) -> None:
        """Called between two steps of ``sampling``: whoever waits has the model until it is done with it.

        Args:
            fit: Whether sampling can go on then; where it cannot, the next who comes has to mend that.
        """
        if not self._waiting and fit():
            return
        self._model.release()
        try:
            with self._changed:
                self._changed.wait_for(lambda: not self._waiting and fit())
        finally:
            self._model.acquire()

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """The block has the model as soon as who samples gives way, or at once where nobody does."""
        with self._changed:
            self._waiting += 1
        try:
            with self._model:
                yield
        finally:
            with self._changed:
                self._waiting -= 1
                self._changed.notify_all()
