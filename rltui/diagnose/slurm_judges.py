"""Steps that wait: normal when they start in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.diagnose.causes import Verdict
from rltui.diagnose.judging import surest, unless_followed_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.diagnose.causes import Overview
    from rltui.diagnose.signs import Sighting


def slurm_step_create(sightings: Sequence[Sighting], overview: Overview) -> Verdict | None:
    """A refusal counts; a retry only if it is said again ('still disabled') and no step came about after it.

    srun says "temporarily disabled" at once and "still disabled" after a minute and more of waiting, and "Step created"
    when the wait is over.
    """
    verdict = surest(sightings)
    if verdict is not None:
        return verdict
    waiting = unless_followed_by(overview.of("step_waiting"), overview.of("step_created"), same="job")
    if any(one.fields["word"] == "still" for one in waiting) or len(waiting) >= 3:
        return Verdict(confidence=0.75, sightings=waiting)
    return None
