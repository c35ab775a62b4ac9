"""Advantages: what a sample is worth against its siblings, or a token against what the critic expected.

Shapes: P prompts, G samples of each prompt (the group); B samples, R response positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

STD_EPSILON = 1e-6
"""Keeps a group of equal rewards from dividing by zero."""

VARIANCE_EPSILON = 1e-8
"""The same where a whole batch is whitened; verl's, so that advantages are equal to its."""


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


def overlong_penalty(lengths: torch.Tensor, limit: int, tokens: int) -> torch.Tensor:
    """Soft penalty of long responses, to be added to the reward: 0 to -1 (DAPO, Yu et al. 2025).

    It is 0 up to ``limit - tokens`` tokens and falls linearly to -1 at the limit.

    Args:
        lengths: Response tokens, any shape.
        limit: Longest response.
        tokens: Length of the slope; 0: no penalty.
    """
    if not tokens:
        return lengths.new_zeros(lengths.shape).float()
    return -((lengths - (limit - tokens)) / tokens).clamp(0.0, 1.0)


def penalised_rewards(rewards: torch.Tensor, kl: torch.Tensor, mask: torch.Tensor, coefficient: float) -> torch.Tensor:
    """Rewards [B] of samples less the KL to the reference, summed over each sample's tokens.

    The sum over tokens is the estimate of the KL between distributions of whole responses, so this is the reward of
    KL-regularised RL (Ziegler et al. 2019) for algorithms that judge whole samples.

    Args:
        rewards: [B].
        kl: [B, R] estimates at each token.
        mask: [B, R] boolean.
        coefficient: Weight of the penalty.
    """
    return rewards - coefficient * kl.masked_fill(~mask, 0.0).sum(dim=1)


def token_rewards(
    rewards: torch.Tensor, mask: torch.Tensor, kl: torch.Tensor | None, kl_coefficient: float
) -> torch.Tensor:
    """Rewards of tokens [B, R]: the sample's at its last token, less the KL penalty of each token.

    Args:
        rewards: [B].
        mask: [B, R] boolean, true on the response tokens that the policy chose.
        kl: [B, R] estimates of KL(policy || reference), or None.
        kl_coefficient: Weight of the penalty.
    """
    found = mask.new_zeros(mask.shape, dtype=rewards.dtype)
    filled = mask.any(dim=1)
    last = mask.shape[1] - 1 - mask.flip(1).int().argmax(dim=1)
    found[filled, last[filled]] = rewards[filled]
    return found if kl is None else found - kl_coefficient * kl.masked_fill(~mask, 0.0)


def generalised_advantages(
    rewards: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, gamma: float, gae_lambda: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Generalised advantage estimation (Schulman et al. 2016): sums of (gamma * lambda)^l delta_{t+l}.

    delta_t = r_t + gamma V_{t+1} - V_t, and the value after the last token is 0, because the episode ends there.
    Tokens outside the mask, which an environment said, are skipped: the next one that the policy chose follows.

    Args:
        rewards: [B, R] of tokens.
        values: [B, R] of the states in which the tokens were chosen.
        mask: [B, R] boolean, true on the response tokens that the policy chose.
        gamma: Discount.
        gae_lambda: 0: one step ahead; 1: the whole return.

    Returns:
        Advantages and returns (advantage + value), both [B, R] and zero outside the mask.
    """
    import torch

    weights = mask.to(values.dtype)
    values, rewards = values * weights, rewards * weights
    advantages = values.new_zeros(values.shape)
    following = values.new_zeros(len(values))
    next_values = values.new_zeros(len(values))
    for t in reversed(range(values.shape[1])):
        chosen = mask[:, t]
        delta = rewards[:, t] + gamma * next_values - values[:, t]
        following = torch.where(chosen, delta + gamma * gae_lambda * following, following)
        next_values = torch.where(chosen, values[:, t], next_values)
        advantages[:, t] = following * weights[:, t]
    return advantages, (advantages + values) * weights


def whiten(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """``values`` [B, R] shifted and scaled to mean 0 and deviation 1 over the masked tokens; 0 elsewhere."""
    chosen = values[mask]
    if chosen.numel() < 2:
        return values.masked_fill(~mask, 0.0)
    return ((values - chosen.mean()) * (chosen.var() + VARIANCE_EPSILON).rsqrt()).masked_fill(~mask, 0.0)
