"""When an engine's death is news: the same words end every offline script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.diagnose.causes import Verdict
from rltui.diagnose.judging import surest
from rltui.diagnose.signs import Found, Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.diagnose.causes import Overview
    from rltui.diagnose.signs import Sighting


_LINES_TO_TRACEBACK = 4


def read_missed_engine(found: Found) -> Reading | None:
    """Who still wanted something of the engine runs into an exception right after; who was done does not."""
    after = (line.text for line in found.spot.after(_LINES_TO_TRACEBACK))
    return Reading(0.65) if any(text.startswith("Traceback (most recent call last)") for text in after) else None


def engine_core_died(sightings: Sequence[Sighting], overview: Overview) -> Verdict | None:
    """The client that waits for a dead engine reports it; the exit line alone is how an offline script ends.

    vLLM's client prints "died unexpectedly" whenever the engine process goes before the client does, and at the end of
    an offline script it does. What tells a death in the middle is somebody who missed the engine.
    """
    exits = overview.of("engine_exit_line")
    if not sightings:
        done = overview.of("engine_work_done")
        missed = overview.of("failed_end")
        if not exits or not missed or (done and done[-1].order > exits[0].order):
            return None
        return Verdict(confidence=0.65, sightings=tuple(exits))
    return surest([*sightings, *exits])
