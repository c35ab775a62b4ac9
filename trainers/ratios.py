"""Ratios of probabilities, and how each variant of policy optimisation bounds them.

Two ratios must not be confused. That of the policy over its old self, p / p_old, carries the gradient and is clipped so
that one batch can be used for several optimizer steps. That of trainer over engine, p_old / p_engine, carries none: it
corrects that the samples came from other kernels, or from older weights.

Shapes: B samples, R response positions; every [B, R] tensor goes with a boolean mask that is true on the response
tokens that the policy chose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch

if TYPE_CHECKING:
    from rltui.layout.algorithms import Importance


LOG_RATIO_BOUND = 20.0
"""Largest |log-ratio| that counts, as in verl: exp of more overflows in float32 once it meets an advantage."""


@dataclass(frozen=True)
class Tokens:
    """What a surrogate may know of the response tokens, each [B, R].

    Attributes:
        log_probs: Of the policy, differentiable.
        old_log_probs: Of the policy at the start of the step.
        engine_log_probs: As the engine reported them.
        advantages: What each token is worth.
        mask: True on the response tokens that the policy chose.
    """

    log_probs: torch.Tensor
    old_log_probs: torch.Tensor
    engine_log_probs: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor

    @property
    def apart(self) -> torch.Tensor:
        """Log p - log p_old, 0 outside the mask."""
        return (self.log_probs - self.old_log_probs).masked_fill(~self.mask, 0.0)


Gains: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
"""What each token gains [B, R], to be maximised, and which tokens the bounds have changed [B, R]."""

Surrogate: TypeAlias = "Callable[[Tokens], Gains]"
"""A variant with its settings."""


@dataclass(frozen=True)
class Truncation:
    """How p_old / p_engine is bounded.

    Attributes:
        cap: Most that a weight may be.
        mode: See ``importance_weight``.
        low: Least that a weight may be where ``mode`` is ``mask`` or ``sequence_mask``.
    """

    cap: float
    mode: Importance = "cap"
    low: float = 0.0


def token(tokens: Tokens, *, clip_low: float, clip_high: float, dual_clip: float = 0.0) -> Gains:
    """min(r A, k A) with r = p / p_old of the token and k = clip(r, 1 - clip_low, 1 + clip_high).

    Schulman et al. 2017 (PPO); separate bounds: Yu et al. 2025 (DAPO). Where A < 0 and ``dual_clip`` is c, no less than
    c A (Ye et al. 2020); 0: without bound.
    """
    return _clipped(_ratio(tokens.apart), tokens, clip_low, clip_high, dual_clip)


def sequence(tokens: Tokens, *, clip_low: float, clip_high: float, dual_clip: float = 0.0) -> Gains:
    """As ``token`` with the geometric mean of the sample's ratios in the place of each (GSPO, Zheng et al. 2025)."""
    # GSPO's bounds are some 3e-4 and not 0.2: the mean over a response moves that much less than its tokens
    return _clipped(_ratio(_sample_mean(tokens.apart, tokens.mask)), tokens, clip_low, clip_high, dual_clip)


def cispo(tokens: Tokens, *, clip_low: float, clip_high: float) -> Gains:
    """K A log p with no gradient through k, so that no token loses its gradient (MiniMax-M1, 2025)."""
    ratio = _ratio(tokens.apart)
    bounded = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    # REINFORCE's gradient, weighted: clipping that stops gradients would silence the rare tokens where a chain of
    # thought turns
    gained = bounded.detach() * tokens.advantages * tokens.log_probs.masked_fill(~tokens.mask, 0.0)
    return gained, (bounded != ratio) & tokens.mask


def gmpo(tokens: Tokens, *, clip_low: float, clip_high: float) -> Gains:
    """A times the geometric mean of ratios that are clipped token by token (GMPO, Zhao et al. 2025).

    The bounds are those of the log-ratio, -clip_low to clip_high, where it would move further with the advantage.
    """
    sign, apart = tokens.advantages.sign(), tokens.apart
    # times the advantage's sign, the pessimistic side is the smaller one for either sign, as in PPO's minimum
    kept = torch.minimum(sign * apart, sign * apart.clamp(-clip_low, clip_high))
    ratio = _ratio(_sample_mean(sign * kept, tokens.mask))
    return ratio * tokens.advantages, (kept != sign * apart) & tokens.mask


def sapo(tokens: Tokens, *, sapo_temperature_positive: float, sapo_temperature_negative: float) -> Gains:
    """A times a soft gate of r, sigmoid(t (r - 1)) 4 / t, in the place of clipping (SAPO, Gao et al. 2025).

    Its slope is 1 at r = 1 and falls off on both sides; t is one of two temperatures, by the advantage's sign.
    """
    worth = tokens.advantages
    hot, cold = (torch.full_like(worth, value) for value in (sapo_temperature_positive, sapo_temperature_negative))
    temperature = torch.where(worth > 0, hot, cold)
    # 4 / t: a sigmoid's slope at 0 is 1/4, so near r = 1 the gate moves as PPO's ratio does
    gate = torch.sigmoid(temperature * (_ratio(tokens.apart) - 1.0)) * 4.0 / temperature
    return gate * worth, torch.zeros_like(tokens.mask)


def clip_cov(
    tokens: Tokens,
    *,
    clip_low: float,
    clip_high: float,
    clip_cov_fraction: float,
    clip_cov_low: float,
    clip_cov_high: float,
) -> Gains:
    """As ``token``, but some tokens that would lower the entropy most have no gradient (Clip-Cov, Cui et al. 2025).

    They are drawn from those that are not clipped and whose covariance, (A - mean A)(log p - mean log p), is between
    the bounds: ``clip_cov_fraction`` of the tokens that are seen at once, a micro-batch of a rank, and at least one.
    """
    gained, clipped = token(tokens, clip_low=clip_low, clip_high=clip_high)
    covariance = _covariance(tokens)
    candidates = tokens.mask & ~clipped & (covariance > clip_cov_low) & (covariance < clip_cov_high)
    places = candidates.flatten().nonzero().squeeze(1).cpu()
    count = max(1, int(clip_cov_fraction * int(tokens.mask.sum())))
    drawn = places[torch.randperm(len(places))[:count]]  # the random state is part of a checkpoint
    chosen = torch.zeros(tokens.mask.numel(), dtype=torch.bool).index_fill(0, drawn, True)
    left_out = chosen.view(tokens.mask.shape).to(tokens.mask.device)
    return gained.masked_fill(left_out, 0.0), clipped | left_out


def kl_cov(tokens: Tokens, *, kl_cov_fraction: float, kl_cov_coefficient: float) -> Gains:
    """R A, and of tokens that would lower the entropy most a penalty on |log r| taken off (KL-Cov, Cui et al. 2025).

    They are the ``kl_cov_fraction`` of largest covariance, (A - mean A)(log p - mean log p), among the tokens that are
    seen at once, a micro-batch of a rank, and at least one. Nothing is clipped.
    """
    apart, number = tokens.apart, int(tokens.mask.sum())
    # outside the mask a product of both means is left, which must not be among the largest
    covariance = _covariance(tokens).masked_fill(~tokens.mask, -torch.inf).flatten()
    chosen = torch.zeros_like(covariance, dtype=torch.bool)
    if number:
        chosen[covariance.topk(max(1, int(number * kl_cov_fraction))).indices] = True
    penalised = chosen.view_as(tokens.mask)
    # the slope of |x| at 0 is 0 in torch: before the first optimizer step moves the policy, the penalty has no gradient
    penalty = kl_cov_coefficient * apart.abs() * penalised
    return _ratio(apart) * tokens.advantages - penalty, penalised


def _ratio(apart: torch.Tensor) -> torch.Tensor:
    # before exp and not after: inf times a zero advantage is NaN, and one such token spoils the whole batch's loss
    return apart.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()


def _clipped(ratio: torch.Tensor, tokens: Tokens, low: float, high: float, dual: float) -> Gains:
    plain = ratio * tokens.advantages
    # the minimum is pessimistic: a bound takes gradient away where the ratio has moved with the advantage, never adds
    # any
    gained = torch.minimum(plain, ratio.clamp(1.0 - low, 1.0 + high) * tokens.advantages)
    if dual:
        # for A < 0 the minimum has no floor: a token that became far likelier than it was would outweigh the batch
        gained = torch.where(tokens.advantages < 0, torch.maximum(gained, dual * tokens.advantages), gained)
    return gained, (gained != plain) & tokens.mask


def _covariance(tokens: Tokens) -> torch.Tensor:
    """What each token adds to the covariance of advantage and log-probability [B, R], without gradient."""
    mask, number = tokens.mask, tokens.mask.sum().clamp(min=1)

    def centred(values: torch.Tensor) -> torch.Tensor:
        values = values.detach().masked_fill(~mask, 0.0)
        return values - values.sum() / number

    return centred(tokens.advantages) * centred(tokens.log_probs)


def importance_weight(
    trainer_log_probs: torch.Tensor, engine_log_probs: torch.Tensor, mask: torch.Tensor, truncation: Truncation
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight p_trainer / p_engine of each token [B, R], 0 outside the mask, and which ones were bounded; no gradient.

    Engine and trainer compute the same policy with different kernels, so samples are slightly off-policy even when
    the weights agree. ``cap``: min(w, cap) of each token (Yao et al. 2025, truncated importance sampling); ``mask``: 0
    where w is not within low to cap (IcePop, Ling team 2025); ``sequence_product``, ``sequence_mean``: the product or
    the geometric mean over the sample's tokens, capped, for all of them; ``sequence_mask``: the product, and 0 for all
    tokens of samples where it is not within low to cap (masked importance sampling, Liu et al. 2025); ``off``: 1.
    """
    apart = (trainer_log_probs.detach() - engine_log_probs).masked_fill(~mask, 0.0)
    if truncation.mode == "off":
        return mask.to(apart.dtype), torch.zeros_like(mask)
    if truncation.mode in ("sequence_product", "sequence_mask"):
        # the unbiased weight of a response is the product over its tokens; its variance grows with the length
        apart = apart.sum(dim=1, keepdim=True).expand_as(apart)
    elif truncation.mode == "sequence_mean":
        apart = _sample_mean(apart, mask)
    # the log of a product over thousands of tokens may be in the hundreds, and exp of that is inf
    weight = apart.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()
    limited = (weight > truncation.cap) & mask
    if truncation.mode in ("mask", "sequence_mask"):
        limited = limited | ((weight < truncation.low) & mask)
        return weight.masked_fill(limited | ~mask, 0.0), limited
    return weight.clamp(max=truncation.cap).masked_fill(~mask, 0.0), limited


def highest(entropies: torch.Tensor, mask: torch.Tensor, fraction: float) -> torch.Tensor:
    """Which tokens of ``mask`` [B, R] are among the ``fraction`` of highest entropy (Wang et al. 2025), one at least.

    As many as are above the quantile 1 - fraction of those that are seen at once, a micro-batch of a rank.
    """
    number = int(mask.sum())
    if fraction >= 1.0 or not number:
        return mask
    most = entropies.detach().masked_fill(~mask, -torch.inf)
    # f (n - 1) places from the top lies the quantile 1 - f; torch.quantile itself takes 16 million numbers at most
    least = most.flatten().topk(1 + int(fraction * (number - 1))).values[-1]
    return mask & (most >= least)


def _sample_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of each sample's tokens in the place of all of them [B, R]; ``values`` are 0 outside the mask."""
    tokens = mask.sum(dim=1, keepdim=True).clamp(min=1)
    return (values.sum(dim=1, keepdim=True) / tokens).expand_as(values)
