"""What happened to a run, from the events of all its attempts."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from rltui.onnode import rundir
from rltui.watch.lines import AttemptLines, parse_object
from rltui.watch.text import plain_value

MAX_EVENTS = 500


def details(event: Mapping[str, Any]) -> dict[str, Any]:
    """What an event says beside its words: names with plain values; what is built of several is for programs."""
    known = ("time", "kind", "text")
    return {name: value for name, value in event.items() if name not in known and not isinstance(value, list | dict)}


class EventsReader:
    """Keeps the newest events of a run, oldest first; each says which ``attempt`` it is of."""

    def __init__(self, run_path: str) -> None:
        self.lines = AttemptLines(run_path, rundir.EVENTS, self._take)
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)

    def snapshot(self) -> tuple[dict[str, Any], ...]:
        """The events read so far; each has ``time``, ``kind``, ``text`` and ``attempt``, and may have more."""
        return tuple(self._events)

    def _take(self, attempt: int, lines: list[bytes]) -> None:
        for line in lines:
            event = parse_object(line)
            if event is not None and isinstance(event.get("time"), int | float):
                self._events.append({"kind": "", "text": "", **plain_value(event), "attempt": attempt})
