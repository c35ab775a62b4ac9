"""How systems word their errors: signs as data, one family of systems a file.

A pattern follows the wording of the system that prints it, across its versions; numbers, names and paths stay open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.diagnose.wordings import (
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
    states,
)

if TYPE_CHECKING:
    from rltui.diagnose.signs import Sign

_FAMILIES = (slurm, gpu_health, host, ray, cuda_memory, engine, collectives, learner, outside, environment, own, states)


def all_signs() -> tuple[Sign, ...]:
    """Return every sign."""
    return tuple(sign for family in _FAMILIES for sign in family.SIGNS)
