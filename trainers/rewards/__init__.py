"""What samples earn: the true reward of each, and the one that training sees."""

from __future__ import annotations

import random
from collections.abc import Sequence


def training_rewards(kind: str, true_rewards: Sequence[Sequence[float]], seed: int, step: int) -> list[list[float]]:
    """The rewards to train on, for each prompt those of its samples.

    Those of ``coin``, the negative control, are fair flips, the same for the same seed and step: nothing can be learned
    from them. The metric ``reward`` reports ``true_rewards`` either way, so that the control is seen to fail.
    """
    if kind != "coin":
        return [list(group) for group in true_rewards]
    flips = random.Random(f"coin/{seed}/{step}")
    return [[float(flips.getrandbits(1)) for _ in group] for group in true_rewards]
