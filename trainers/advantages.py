"""Advantages: what a sample is worth against its siblings, or a token against what the critic expected; filters.

Shapes: P prompts, G samples of each prompt (the group); B samples, R response positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

STD_EPSILON = 1e-6
"""Keeps a group of equal rewards from dividing by zero."""

VARIANCE_EPSILON = 1e-8
"""The same where a whole batch is whitened; verl's, so that advantages are equal to its."""


@dataclass(frozen=True)
class Groups:
    """What a step has to judge samples by: P prompts, G samples of each.

    Attributes:
        rewards: [P, G], floating point, penalties taken off.
        lengths: [P, G], response tokens that the policy chose.
        parts: By name, what the rewards are the sum of: [P, G] values, and the weight of all; empty: they are whole.
    """

    rewards: torch.Tensor
    lengths: torch.Tensor
    parts: Mapping[str, tuple[torch.Tensor, float]] = field(default_factory=dict)


def standard(groups: Groups) -> torch.Tensor:
    """Reward minus the group's mean, over its sample deviation, [P, G] (Shao et al. 2024, DeepSeekMath)."""
    return _standardised(groups.rewards)


def centered(groups: Groups) -> torch.Tensor:
    """Reward minus the group's mean, which has no bias towards prompts of small deviation (Dr. GRPO, 2025)."""
    return groups.rewards - groups.rewards.mean(dim=1, keepdim=True)


def rloo(groups: Groups) -> torch.Tensor:
    """REINFORCE leave-one-out: reward minus the mean of the group's other samples (Ahmadian et al. 2024)."""
    samples = groups.rewards.shape[1]
    # r less the mean of the others is (r less the mean of all) * G / (G - 1)
    return centered(groups) * (samples / max(1, samples - 1))


def opo(groups: Groups) -> torch.Tensor:
    """Reward minus the group's mean weighted by length, the baseline of least variance (OPO, Hao et al. 2025)."""
    lengths = groups.lengths.to(groups.rewards.dtype)
    # a long response's gradient is a sum of more terms, so the baseline of least variance is nearer to its reward
    weights = lengths / lengths.sum(dim=1, keepdim=True).clamp(min=1)
    return groups.rewards - (groups.rewards * weights).sum(dim=1, keepdim=True)


def gdpo(groups: Groups) -> torch.Tensor:
    """Each part of the reward standardised in its group, summed by weight, and the batch standardised (GDPO, 2026).

    So a part that varies little still counts beside one that varies much (Liu et al. 2026, arXiv 2601.05242).
    """
    parts = groups.parts or {"reward": (groups.rewards, 1.0)}
    # each before they are added: otherwise a part in small units drowns in one in large units
    total = sum(weight * _standardised(values) for values, weight in parts.values())
    # over the batch once more: the spread of the sum grows with the number of parts, and the step's size must not
    return _standardised(torch.as_tensor(total).reshape(1, -1)).reshape(groups.rewards.shape)


def reinforce_plus_plus(groups: Groups) -> torch.Tensor:
    """Rewards whitened over the tokens of the batch; no group is needed (REINFORCE++, Hu et al. 2025)."""
    return _whitened(groups.rewards, groups.lengths)


def reinforce_plus_plus_baseline(groups: Groups) -> torch.Tensor:
    """Rewards minus the group's mean, whitened over the tokens of the batch (REINFORCE++-baseline, Hu et al. 2025)."""
    # a group of one is its own mean: centred, nothing would be left of its reward
    rewards = groups.rewards if groups.rewards.shape[1] == 1 else centered(groups)
    return _whitened(rewards, groups.lengths)


def _standardised(rewards: torch.Tensor) -> torch.Tensor:
    """Each row of [P, G] minus its mean, over its sample deviation (n - 1); zero where all of it is the same."""
    # the mean of equal floats may be rounded, and their deviation is then as small: divided, that is no small number
    alike = rewards.amax(dim=1, keepdim=True) == rewards.amin(dim=1, keepdim=True)
    apart = (rewards - rewards.mean(dim=1, keepdim=True)).masked_fill(alike, 0.0)
    # n - 1 is 0 for a single sample, and std then NaN
    # the epsilon is beside the deviation, as in verl's GRPO; whitening has its own beside the variance, as verl's
    return apart if rewards.shape[1] == 1 else apart / (rewards.std(dim=1, keepdim=True) + STD_EPSILON)


def _whitened(rewards: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Rewards [P, G], of which each token has its sample's, with mean 0 and deviation 1 over all tokens."""
    tokens = lengths.sum()
    if tokens < 2:
        return rewards - rewards.mean()
    apart = rewards - (rewards * lengths).sum() / tokens
    # tokens - 1 as torch's var and verl's masked_var have it (Bessel's correction)
    return apart * ((apart.square() * lengths).sum() / (tokens - 1) + VARIANCE_EPSILON).rsqrt()


def differ(rewards: torch.Tensor) -> torch.Tensor:
    """Which groups can teach anything: [P] booleans, false where all samples of a group earn the same.

    Such a group's advantages are all zero, so its tokens only dilute the mean over tokens (DAPO, Yu et al. 2025).
    """
    # not std > 0: the mean of equal floats such as 0.1 may be rounded, and their deviation then is not 0
    return rewards.amax(dim=1) > rewards.amin(dim=1)


def mean_within(rewards: torch.Tensor, *, filter_low: float, filter_high: float) -> torch.Tensor:
    """Groups [P] that are neither too hard nor too easy: mean reward from low to high (PRIME, Cui et al. 2025)."""
    mean = rewards.mean(dim=1)
    return (mean >= filter_low) & (mean <= filter_high)


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
    # not the last column: rows are padded to the longest, and an environment may have had the last word
    # flipped, since argmax answers with the first of equal values
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
    weights = mask.to(values.dtype)
    values, rewards = values * weights, rewards * weights
    advantages = values.new_zeros(values.shape)
    following = values.new_zeros(len(values))
    next_values = values.new_zeros(len(values))
    for t in reversed(range(values.shape[1])):
        chosen = mask[:, t]
        delta = rewards[:, t] + gamma * next_values - values[:, t]
        # what an environment says between two tokens is no decision of the policy: it is neither discounted nor a
        # step
        following = torch.where(chosen, delta + gamma * gae_lambda * following, following)
        next_values = torch.where(chosen, values[:, t], next_values)
        advantages[:, t] = following * weights[:, t]
    # the critic's targets are lambda-returns (advantage plus the value it is measured against), not Monte Carlo ones
    return advantages, (advantages + values) * weights


def whiten(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """``values`` [B, R] shifted and scaled to mean 0 and deviation 1 over the masked tokens; 0 elsewhere."""
    # padding is zeros: with it, the mean would be drawn to 0 and the deviation made small
    chosen = values[mask]
    if chosen.numel() < 2:
        return values.masked_fill(~mask, 0.0)
    return ((values - chosen.mean()) * (chosen.var() + VARIANCE_EPSILON).rsqrt()).masked_fill(~mask, 0.0)
