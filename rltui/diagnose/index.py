"""All causes and signs, and the table by which the scan finds candidates."""

from __future__ import annotations

from functools import cache
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
    ray,
    slurm,
    states,
)
from rltui.diagnose.signs import key_words

if TYPE_CHECKING:
    from rltui.diagnose.causes import Cause
    from rltui.diagnose.signs import Sign

_FAMILIES = (slurm, gpu_health, host, ray, cuda_memory, engine, collectives, learner, outside, environment)

CAUSES: dict[str, Cause] = {cause.id: cause for family in _FAMILIES for cause in family.CAUSES}
SIGNS: tuple[Sign, ...] = tuple(sign for family in (*_FAMILIES, states) for sign in family.SIGNS)


@cache
def signs_by_word() -> dict[bytes, tuple[Sign, ...]]:
    """Return the signs that each key word may lead to."""
    table: dict[bytes, list[Sign]] = {}
    for sign in SIGNS:
        for word in key_words(sign):
            table.setdefault(word.encode(), []).append(sign)
    return {word: tuple(signs) for word, signs in table.items()}
