"""Group-relative advantages: what each sample is worth against its siblings of the same prompt.

Shapes: P prompts, G samples of each prompt (the group).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

STD_EPSILON = 1e-6
"""Keeps a group of equal rewards from dividing by zero."""


def group_advantages(rewards: torch.Tensor, kind: Literal["standard", "centered"]) -> torch.Tensor:
    """Advantages of GRPO: reward minus the group's mean, over the group's standard deviation.

    ``standard`` is Shao et al. 2024 (DeepSeekMath), with the sample deviation (n - 1); ``centered`` leaves out the
    division, which removes the bias towards prompts of small deviation (Dr. GRPO, Liu et al. 2025).

    Args:
        rewards: [P, G], floating point.
        kind: Divide by the deviation or not.

    Returns:
        [P, G] of the same type; zero where a group's samples all earn the same, or where G is 1.
    """
    centered = rewards - rewards.mean(dim=1, keepdim=True)
    if kind == "centered" or rewards.shape[1] == 1:
        return centered
    return centered / (rewards.std(dim=1, keepdim=True) + STD_EPSILON)


def has_signal(rewards: torch.Tensor) -> torch.Tensor:
    """Which groups can teach anything: [P] booleans, false where all samples of a group earn the same.

    Such a group's advantages are all zero, so its tokens only dilute the mean over tokens (DAPO, Yu et al. 2025).
    """
    return rewards.amax(dim=1) > rewards.amin(dim=1)
