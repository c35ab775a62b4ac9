"""The causes: their story, rank and remedies, one family a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.diagnose.catalog import (
    collectives,
    cuda_memory,
    engine,
    environment,
    gpu_health,
    host,
    learner,
    outside,
    own,
    ray,
    slurm,
)

if TYPE_CHECKING:
    from rltui.diagnose.causes import Cause

_FAMILIES = (slurm, gpu_health, host, ray, cuda_memory, engine, collectives, learner, outside, environment, own)


def all_causes() -> tuple[Cause, ...]:
    """Return every cause."""
    return tuple(cause for family in _FAMILIES for cause in family.CAUSES)
