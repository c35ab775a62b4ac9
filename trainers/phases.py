"""How long the phases of a training step take."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Protocol


class Board(Protocol):
    """What shows the phase that a run is in."""

    def enter(self, phase: str) -> None:
        """Show that ``phase`` began."""


class Phases:
    """The phases of a step, whose times do not overlap: what is spent in a phase within another is the inner one's.

    Args:
        board: Where the phase is shown.

    Attributes:
        seconds: Of each phase since the last ``take``; times of a phase that comes again add up.
    """

    def __init__(self, board: Board) -> None:
        self._board, self._outer = board, ""
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Show and time one phase."""
        outer, self._outer = self._outer, name
        self._board.enter(name)
        began = time.monotonic()
        try:
            yield
        finally:
            self._outer = outer
            self.move(time.monotonic() - began, outer, name)
        if outer:
            self._board.enter(outer)

    def move(self, seconds: float, source: str, target: str) -> None:
        """Count ``seconds`` as those of phase ``target`` and not of ``source``; an empty one is none."""
        for name, more in ((source, -seconds), (target, seconds)):
            if name:
                self.seconds[name] = self.seconds.get(name, 0.0) + more

    def take(self) -> dict[str, float]:
        """The seconds of each phase; from here on they are those of the next step."""
        taken, self.seconds = self.seconds, {}
        return taken
