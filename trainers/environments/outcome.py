"""What an environment made of a sample."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """How a sample ended.

    Attributes:
        reward: The sum of its steps' rewards.
        turns: Answers that the environment was given.
        failed: The environment failed or took too long, and the reward is 0.
    """

    reward: float
    turns: int
    failed: bool = False
