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
        (plan.group, plan.bundle, plan.offset + slot): plan.name
        for plan in planned
        if plan.role == "learner"
        for slot in range(plan.slots)
    }
    found: dict[str, tuple[str, ...]] = {}
    for plan in planned:
        if plan.role == "engine":
            slots = [(plan.group, plan.bundle, plan.offset + slot) for slot in range(plan.slots)]
            if not all(slot in owners for slot in slots):
                return {}
            found[plan.name] = tuple(owners[slot] for slot in slots)
    hosts = [learner for learners in found.values() for learner in learners]
    return found if len(set(hosts)) == len(hosts) else {}
