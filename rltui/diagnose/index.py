"""All causes, and the table by which the scan finds the lines that may word one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from rltui.diagnose.cause import Cause
from rltui.diagnose.causes import (
    collectives,
    cuda_memory,
    engine_serving,
    engine_start,
    environment,
    gpu_health,
    host,
    learner,
    nccl,
    outside,
    own,
    program,
    ray_cluster,
    ray_memory,
    ray_tasks,
    silent,
    slow,
    slurm_end,
    slurm_start,
    states,
)
from rltui.diagnose.wording import Wording, anchor_words, key_words

_FAMILIES = (
    slurm_end, slurm_start, gpu_health, host, ray_memory, ray_tasks, ray_cluster, cuda_memory, engine_start,
    engine_serving, collectives, nccl, learner, outside, environment, program, own, silent, slow,
)  # fmt: skip
_WITH_STATES = (slurm_start, ray_tasks, ray_cluster, engine_serving, collectives, nccl, outside, states)

CAUSES: dict[str, Cause] = {cause.id: cause for family in _FAMILIES for cause in family.CAUSES}


class Rule(NamedTuple):
    """A wording and what it stands for: a cause, or a state that causes take into account.

    ``needed``: the words that a line must have for it to be possible.
    """

    cause: str
    wording: Wording
    needed: frozenset[bytes]


def _rules() -> Iterator[Rule]:
    worded = {cause.id: cause.wordings for cause in CAUSES.values()}
    for entries in (worded, *(family.STATES for family in _WITH_STATES)):
        for cause, wordings in entries.items():
            for wording in wordings:
                yield Rule(cause, wording, frozenset(word.encode() for word in anchor_words(wording)))


RULES: tuple[Rule, ...] = tuple(_rules())


@cache
def rules_by_word() -> dict[bytes, tuple[Rule, ...]]:
    """Return the rules that each key word may lead to."""
    table: dict[bytes, list[Rule]] = {}
    for rule in RULES:
        for word in key_words(rule.wording):
            table.setdefault(word.encode(), []).append(rule)
    return {word: tuple(rules) for word, rules in table.items()}
