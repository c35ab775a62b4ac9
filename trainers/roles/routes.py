"""Which learner an engine gets its weights from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainers.placement import PlannedRole


def colocated_learners(planned: Sequence[PlannedRole]) -> Mapping[str, tuple[str, ...]]:
    """The learners on whose slots the workers of each engine sit, in the order of the workers, by the engine's name.

    Empty where some worker has a slot of its own: then all engines get their weights from rank 0, over one group.
    """
    owners = {
        (seat.group, seat.bundle, seat.offset + slot): seat.name
        for seat in planned
        if seat.role == "learner"
        for slot in range(seat.slots)
    }
    found: dict[str, tuple[str, ...]] = {}
    for seat in planned:
        if seat.role == "engine":
            slots = [(seat.group, seat.bundle, seat.offset + slot) for slot in range(seat.slots)]
            if not all(slot in owners for slot in slots):
                return {}
            found[seat.name] = tuple(owners[slot] for slot in slots)
    hosts = [learner for learners in found.values() for learner in learners]
    return found if len(set(hosts)) == len(hosts) else {}
