"""The rules by family: P placement, B batch, E engine, H host, D data and model, S Slurm, T tracking, X secrets.

Codes are stable for ever: a rule that goes leaves a gap.
"""

from __future__ import annotations

from rltui.check.rules import batch, data, engine, host, placement, settings

__all__ = ["batch", "data", "engine", "host", "placement", "settings"]
