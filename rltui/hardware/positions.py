"""Positions of published checkpoints that differ from those of their family; shapes are shared, limits are not."""

from __future__ import annotations

import re

_OWN: tuple[tuple[str, int], ...] = (
    (r"qwen2\.5-math-.*", 4096),
    (r"qwen2(?:\.5)?-[\d.]+b-instruct", 32768),
    (r"qwen2\.5-coder-.*", 32768),
    (r"qwen3-.*-2507(?:-fp8)?", 262144),
    (r"qwen3-coder-.*", 262144),
    (r"qwen3-[\w.]+(?:-a\d+b)?-base", 32768),
)
"""``max_position_embeddings`` of the checkpoints' published ``config.json``, by name without organisation."""


def own_positions(plain_name: str) -> int | None:
    """Positions of a checkpoint by its name in lower case with dashes; None where its family's count."""
    return next((positions for pattern, positions in _OWN if re.fullmatch(pattern, plain_name)), None)
