"""The rules by family.

P placement, B batch, E engine, H host, M memory, D data and model, S Slurm, T tracking, X secrets.
Codes are stable for ever: a rule that goes leaves a gap.
"""

from __future__ import annotations

from rltui.check.rules import (
    algorithm,
    batch,
    data,
    engine,
    environments,
    grpo,
    heads,
    host,
    kinds,
    memory,
    placement,
    pools,
    settings,
    slurm,
)

FAMILIES = (
    algorithm, batch, data, engine, environments, grpo, heads, host, kinds, memory, placement, pools, settings, slurm,
)  # fmt: skip
"""Importing them registers their rules."""
