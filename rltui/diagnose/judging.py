"""Weighing the sightings of one cause together: the common ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.diagnose.causes import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.diagnose.signs import Sighting


def surest(sightings: Sequence[Sighting]) -> Verdict | None:
    """The first of the surest sightings counts; the rest is further evidence. None where there is none."""
    if not sightings:
        return None
    best = max(sighting.confidence for sighting in sightings)
    # of equally sure lines the one with the numbers in it tells most
    first = max(
        (sighting for sighting in sightings if sighting.confidence == best), key=lambda sighting: len(sighting.fields)
    )
    rest = tuple(sighting for sighting in sightings if sighting is not first)
    return Verdict(confidence=best, sightings=(first, *rest), fields=first.fields)


def unless_followed_by(
    sightings: Sequence[Sighting], recoveries: Sequence[Sighting], same: str = ""
) -> tuple[Sighting, ...]:
    """Leave out sightings after which the same source says that it recovered.

    ``same`` names a field that has to agree: what recovered has to be what had failed.
    """
    return tuple(one for one in sightings if not any(_recovers(other, one, same) for other in recoveries))


def _recovers(recovery: Sighting, failure: Sighting, same: str) -> bool:
    if recovery.source != failure.source or recovery.order < failure.order:
        return False
    return not same or (same in failure.fields and failure.fields[same] == recovery.fields.get(same))
