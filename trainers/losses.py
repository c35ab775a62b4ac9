"""Log-probabilities and the GRPO objective, as pure tensor functions.

Shapes: B samples, R response positions, V vocabulary entries. Every [B, R] tensor goes with a boolean mask that is
true on response tokens; what stands elsewhere has no influence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_ELEMENTS = 2**24
"""Logits that are held in float32 at once: 64 MiB."""


@dataclass(frozen=True)
class PolicyLoss:
    """The loss of one micro-batch with the number of its tokens where clipping stopped the gradient.

    Attributes:
        loss: Scalar, differentiable with respect to the log-probabilities.
        clipped_tokens: Scalar count.
    """

    loss: torch.Tensor
    clipped_tokens: torch.Tensor


def token_log_probs(
    logits: torch.Tensor, token_ids: torch.Tensor, temperature: float = 1.0, chunk_elements: int = CHUNK_ELEMENTS
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each token under softmax(logits / temperature), and the entropy at its position.

    Works through the logits in chunks in both passes, so that no float32 copy of all of them ever exists.

    Args:
        logits: [B, R, V] in any floating type; position t predicts token t of ``token_ids``.
        token_ids: [B, R] int64.
        temperature: The temperature the tokens were sampled at.
        chunk_elements: Most logits to hold in float32 at once.

    Returns:
        Log-probabilities [B, R], differentiable, and entropies [B, R] in nats, which are not (they are a metric).
        float32, or float64 for float64 logits.
    """
    result: tuple[torch.Tensor, torch.Tensor] = _TokenLogProbs.apply(logits, token_ids, temperature, chunk_elements)
    return result


class _TokenLogProbs(torch.autograd.Function):
    """d log p(token) / d logits = (one_hot(token) - softmax) / temperature, recomputed chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, token_ids: torch.Tensor, temperature: float, chunk_elements: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        compute = torch.promote_types(logits.dtype, torch.float32)
        log_probs = torch.empty(token_ids.shape, dtype=compute, device=logits.device)
        log_normalisers, entropies = torch.empty_like(log_probs), torch.empty_like(log_probs)
        for chunk in _chunks(logits.shape, chunk_elements):
            scaled = logits[chunk].to(compute) / temperature
            log_normaliser = scaled.logsumexp(dim=-1)
            log_probs[chunk] = scaled.gather(-1, token_ids[chunk].unsqueeze(-1)).squeeze(-1) - log_normaliser
            entropies[chunk] = log_normaliser - ((scaled - log_normaliser.unsqueeze(-1)).exp() * scaled).sum(dim=-1)
            log_normalisers[chunk] = log_normaliser
        ctx.save_for_backward(logits, token_ids, log_normalisers)
        ctx.temperature, ctx.chunk_elements = temperature, chunk_elements
        ctx.mark_non_differentiable(entropies)
        return log_probs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        logits, token_ids, log_normalisers = ctx.saved_tensors
        grad_logits = torch.empty_like(logits)
        for chunk in _chunks(logits.shape, ctx.chunk_elements):
            scaled = logits[chunk].to(log_normalisers.dtype) / ctx.temperature
            upstream = grads[0][chunk].unsqueeze(-1)
            grad = (scaled - log_normalisers[chunk].unsqueeze(-1)).exp() * -upstream
            grad.scatter_add_(-1, token_ids[chunk].unsqueeze(-1), upstream)
            grad_logits[chunk] = grad / ctx.temperature
        return grad_logits, None, None, None


def _chunks(shape: torch.Size, chunk_elements: int) -> Iterator[tuple[slice, slice]]:
    """Cut [B, R, V] into (samples, positions) blocks of about ``chunk_elements``: whole samples where they fit."""
    num_samples, num_positions, vocabulary = shape
    positions = max(1, min(num_positions, chunk_elements // vocabulary))
    samples = max(1, chunk_elements // (positions * vocabulary)) if positions == num_positions else 1
    for first in range(0, num_samples, samples):
        for start in range(0, num_positions, positions):
            yield slice(first, first + samples), slice(start, start + positions)


def importance_weight(trainer_log_probs: torch.Tensor, engine_log_probs: torch.Tensor, cap: float) -> torch.Tensor:
    """Truncated importance weight min(p_trainer / p_engine, cap) of each token; carries no gradient.

    Engine and trainer compute the same policy with different kernels, so samples are slightly off-policy even when
    the weights agree (Yao et al. 2025, truncated importance sampling).
    """
    return (trainer_log_probs.detach() - engine_log_probs).exp().clamp(max=cap)


def policy_loss(
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor,
    engine_log_probs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    importance_cap: float,
    aggregation: Literal["token", "sequence"],
    denominator: float | None = None,
) -> PolicyLoss:
    """The clipped surrogate of GRPO (Shao et al. 2024) with separate bounds (DAPO, Yu et al. 2025).

    Per token: -w * min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), with r = p / p_old and w the truncated weight
    between trainer and engine. Where each batch is used for one optimizer step, ``old_log_probs`` is
    ``log_probs.detach()``: r is 1 and only its gradient counts.

    Args:
        log_probs: [B, R], differentiable.
        old_log_probs: [B, R], of the trainer's policy at the start of the step.
        engine_log_probs: [B, R], as the engine reported them.
        advantages: [B].
        mask: [B, R] boolean.
        clip_low: The ratio is clipped below 1 - clip_low.
        clip_high: The ratio is clipped above 1 + clip_high.
        importance_cap: Cap of w.
        aggregation: See ``aggregate``.
        denominator: See ``aggregate``.
    """
    advantage = advantages.unsqueeze(1)
    ratio = (log_probs - old_log_probs.detach()).masked_fill(~mask, 0.0).exp()
    plain = ratio * advantage
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * advantage
    weight = importance_weight(old_log_probs, engine_log_probs, importance_cap).masked_fill(~mask, 0.0)
    loss = aggregate(-weight * torch.minimum(plain, clipped), mask, aggregation, denominator)
    return PolicyLoss(loss, ((clipped < plain) & mask).sum())


def aggregate(
    values: torch.Tensor,
    mask: torch.Tensor,
    aggregation: Literal["token", "sequence"],
    denominator: float | None = None,
) -> torch.Tensor:
    """Fold [B, R] into a scalar: the mean over all tokens, or the mean over samples of their token means.

    ``denominator`` stands for the number of tokens or of non-empty samples in the whole global batch, so that the
    sum over micro-batches and ranks is that batch's mean; without it, the numbers of ``mask`` itself are used.
    """
    weights = mask.to(values.dtype)
    tokens_per_sample = weights.sum(dim=1)
    if aggregation == "token":
        total, count = (values * weights).sum(), tokens_per_sample.sum()
    else:
        total = ((values * weights).sum(dim=1) / tokens_per_sample.clamp(min=1.0)).sum()
        count = (tokens_per_sample > 0).sum().to(values.dtype)
    return total / (count.clamp(min=1.0) if denominator is None else denominator)
