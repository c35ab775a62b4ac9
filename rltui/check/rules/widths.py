"""Over how many GPUs a model's heads can be divided."""

from __future__ import annotations

from rltui.hardware.architecture import Architecture
from rltui.hardware.models import known_model


def divides_heads(width: int, model: Architecture) -> bool:
    """Whether ``width`` GPUs divide query heads, and key-value heads divide or are divided."""
    small, large = sorted((width, model.kv_heads))
    return model.heads % width == 0 and large % small == 0


def widest(limit: int, model_name: str) -> int:
    """The most GPUs up to ``limit`` over which the heads of a model can be divided; of one not known, ``limit``."""
    model = known_model(model_name)
    return limit if model is None else max(each for each in range(1, limit + 1) if divides_heads(each, model))
