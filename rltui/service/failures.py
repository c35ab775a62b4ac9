"""The failure words of runs that died, found in the background: reading logs must not hold up a list."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.errors import RltuiError
from rltui.service.failure_cache import DIED, lacks_word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rltui.watch.snapshots import RunSummary

MOST_AT_ONCE = 24
"""Runs that died, newest first, whose logs are looked at; those of older ones are read when somebody asks why."""


class FailureWords:
    """Remembers the word of each attempt that died, and looks for those that it does not know yet.

    Args:
        diagnose: Gives the word of a run; may block, and is called in a thread of its own.
    """

    def __init__(self, diagnose: Callable[[RunSummary], str]) -> None:
        self._diagnose = diagnose
        self._known: dict[tuple[str, int], str] = {}
        self._waiting: deque[RunSummary] = deque()
        self._lock = threading.Lock()
        self._busy = False

    def fill(self, runs: Iterable[RunSummary]) -> tuple[RunSummary, ...]:
        """``runs``, newest first, with the words that are known; the others are looked for."""
        runs = tuple(runs)
        died = [run for run in runs if lacks_word(run)][:MOST_AT_ONCE]
        self._look_for([run for run in died if _key(run) not in self._known])
        return tuple(self._filled(run) for run in runs)

    def _filled(self, run: RunSummary) -> RunSummary:
        word = self._known.get(_key(run), "") if run.state in DIED and not run.failure else ""
        return structs.replace(run, failure=word) if word else run

    def _look_for(self, runs: list[RunSummary]) -> None:
        with self._lock:
            asked = {_key(run) for run in self._waiting}
            self._waiting.extend(run for run in runs if _key(run) not in asked)
            if self._busy or not self._waiting:
                return
            self._busy = True
        threading.Thread(target=self._work, name="failure words", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._busy = False
                    return
                run = self._waiting.popleft()
            try:
                self._known[_key(run)] = self._diagnose(run)
            except RltuiError:  # its cluster is away: it is asked for again with the next list
                continue


def _key(run: RunSummary) -> tuple[str, int]:
    return run.run_id, run.attempt
