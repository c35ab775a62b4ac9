"""Ratios of probabilities, and how each variant of policy optimisation bounds them.

Two ratios must not be confused. That of the policy over its old self, p / p_old, carries the gradient and is clipped so
that one batch can be used for several optimizer steps. That of trainer over engine, p_old / p_engine, carries none: it
corrects that the samples came from other kernels, or from older weights.

Shapes: B samples, R response positions; every [B, R] tensor goes with a boolean mask that is true on the response
tokens that the policy chose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from rltui.layout.settings import Importance, Ratio


LOG_RATIO_BOUND = 20.0
"""Largest |log-ratio| that counts, as in verl: exp of more overflows in float32 once it meets an advantage."""


@dataclass(frozen=True)
class Clip:
    """How p / p_old is bounded.

    Attributes:
        low: It is clipped below 1 - low.
        high: It is clipped above 1 + high.
        ratio: Which ratio; see ``surrogate``.
        dual: Most that it counts for where the advantage is negative; 0: without bound.
    """

    low: float
    high: float
    ratio: Ratio = "token"
    dual: float = 0.0


@dataclass(frozen=True)
class Truncation:
    """How p_old / p_engine is bounded.

    Attributes:
        cap: Most that a weight may be.
        mode: See ``importance_weight``.
        low: Least that a weight may be where ``mode`` is ``mask``.
    """

    cap: float
    mode: Importance = "cap"
    low: float = 0.0


def policy_ratio(log_probs: torch.Tensor, old_log_probs: torch.Tensor, mask: torch.Tensor, kind: Ratio) -> torch.Tensor:
    """The ratio p / p_old [B, R], 1 outside the mask.

    ``sequence`` is the geometric mean over the sample's tokens, the same for all of them (GSPO, Zheng et al. 2025).
    """
    apart = (log_probs - old_log_probs).masked_fill(~mask, 0.0)
    if kind == "sequence":
        apart = _sample_mean(apart, mask).masked_fill(~mask, 0.0)
    return apart.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()


def surrogate(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor, clip: Clip
) -> tuple[torch.Tensor, torch.Tensor]:
    """What each token gains [B, R], to be maximised, and which tokens the bounds have changed.

    With r = p / p_old and k = clip(r, 1 - low, 1 + high):

    - ``token``, ``sequence``: min(r A, k A) (Schulman et al. 2017; separate bounds: DAPO, Yu et al. 2025), where A < 0
      and ``dual`` is c no less than c A (Ye et al. 2020);
    - ``cispo``: k A log p with no gradient through k, so that no token loses its gradient (MiniMax-M1, 2025).
    """
    ratio = policy_ratio(log_probs, old_log_probs, mask, clip.ratio)
    bounded = ratio.clamp(1.0 - clip.low, 1.0 + clip.high)
    if clip.ratio == "cispo":
        gained = bounded.detach() * advantages * log_probs.masked_fill(~mask, 0.0)
        return gained, (bounded != ratio) & mask
    plain = ratio * advantages
    gained = torch.minimum(plain, bounded * advantages)
    if clip.dual:
        gained = torch.where(advantages < 0, torch.maximum(gained, clip.dual * advantages), gained)
    return gained, (gained != plain) & mask


def importance_weight(
    trainer_log_probs: torch.Tensor, engine_log_probs: torch.Tensor, mask: torch.Tensor, truncation: Truncation
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight p_trainer / p_engine of each token [B, R], 0 outside the mask, and which ones were bounded; no gradient.

    Engine and trainer compute the same policy with different kernels, so samples are slightly off-policy even when
    the weights agree. ``cap``: min(w, cap) of each token (Yao et al. 2025, truncated importance sampling); ``mask``: 0
    where w is not within low to cap (IcePop, Ling team 2025); ``sequence_product``, ``sequence_mean``: the product or
    the geometric mean over the sample's tokens, capped, for all of them; ``off``: 1.
    """
    apart = (trainer_log_probs.detach() - engine_log_probs).masked_fill(~mask, 0.0)
    if truncation.mode == "off":
        return mask.to(apart.dtype), torch.zeros_like(mask)
    if truncation.mode == "sequence_product":
        apart = apart.sum(dim=1, keepdim=True).expand_as(apart)
    elif truncation.mode == "sequence_mean":
        apart = _sample_mean(apart, mask)
    weight = apart.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()
    limited = (weight > truncation.cap) & mask
    if truncation.mode == "mask":
        limited = limited | ((weight < truncation.low) & mask)
        return weight.masked_fill(limited | ~mask, 0.0), limited
    return weight.clamp(max=truncation.cap).masked_fill(~mask, 0.0), limited


def _sample_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of each sample's tokens in the place of all of them [B, R]; ``values`` are 0 outside the mask."""
    tokens = mask.sum(dim=1, keepdim=True).clamp(min=1)
    return (values.sum(dim=1, keepdim=True) / tokens).expand_as(values)
