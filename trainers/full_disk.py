"""What a trainer tells of itself on the disk of its run: a disk that is full holds that up, and no training."""

from __future__ import annotations

import errno
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# EDQUOT: a quota is used up, as home and project folders of clusters have them
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
MOST_KEPT = 10_000
"""Lines that wait for room; of more the oldest are given up."""

_said = threading.Event()
log = logging.getLogger(__name__)


@contextmanager
def unless_full() -> Iterator[None]:
    """Leave out what finds no room now, and is written anew in a while anyway.

    Raises:
        OSError: It cannot be written for another reason.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        _say_once(error)


class Lines:
    """Appends lines, each once and in order; what finds no room is written with the first that does."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque(maxlen=MOST_KEPT)
        self._lock = threading.Lock()

    def append(self, write: Callable[[], None]) -> None:
        """Call ``write``, which appends one line, now or once there is room.

        Raises:
            OSError: It cannot be written for another reason.
        """
        with self._lock:
            self._waiting.append(write)
        self.flush()

    def flush(self) -> None:
        """Write what waits, if there is room.

        Raises:
            OSError: It cannot be written for another reason.
        """
        with self._lock, unless_full():
            while self._waiting:
                # it is taken off only when it is written: an error on the way must not lose it
                self._waiting[0]()
                self._waiting.popleft()


def _say_once(error: OSError) -> None:
    if not _said.is_set():
        _said.set()
        log.warning("%s: the training goes on, and tells how it stands once there is room", error)
