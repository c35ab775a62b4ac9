"""What samples earn: the true reward of each, and the one that training sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainers.rewards.coin import coin_rewards

if TYPE_CHECKING:
    from collections.abc import Sequence


def training_rewards(kind: str, true_rewards: Sequence[Sequence[float]], seed: int, step: int) -> list[list[float]]:
    """The rewards to train on, for each prompt those of its samples.

    The metric ``reward`` reports ``true_rewards`` either way, so that the control is seen to fail.
    """
    if kind != "coin":
        return [list(group) for group in true_rewards]
    flips = iter(coin_rewards(sum(map(len, true_rewards)), seed, step))
    return [[next(flips) for _ in group] for group in true_rewards]
