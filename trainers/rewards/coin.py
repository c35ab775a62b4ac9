"""The negative control: a reward that has nothing to do with the answer."""

from __future__ import annotations

import random


def coin_rewards(count: int, seed: int, step: int) -> list[float]:
    """``count`` fair coin flips, the same for the same ``seed`` and ``step``; nothing can be learned from them."""
    flips = random.Random(f"coin/{seed}/{step}")
    return [float(flips.getrandbits(1)) for _ in range(count)]
