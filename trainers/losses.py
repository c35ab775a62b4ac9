"""Log-probabilities and the GRPO objective, as pure tensor functions.

Shapes: B samples, R response positions, V vocabulary entries. Every [B, R] tensor goes with a boolean mask that is
true on the response tokens that the policy chose; what stands elsewhere has no influence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

from trainers.ratios import LOG_RATIO_BOUND, Surrogate, Tokens, Truncation, importance_weight

Shares: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
"""By sample [B]: the weight of each of its tokens, and what it counts in the denominator."""

Aggregation: TypeAlias = "Callable[[torch.Tensor, int], Shares]"
"""From the numbers of tokens of samples [B], floating point, and the limit of response tokens."""

CHUNK_ELEMENTS = 2**24
"""Logits that are held in float32 at once: 64 MiB."""


@dataclass(frozen=True)
class PolicyLoss:
    """The loss of one micro-batch with the number of its tokens where clipping stopped the gradient.

    Attributes:
        loss: Scalar, differentiable with respect to the log-probabilities.
        clipped_tokens: Scalar count.
        limited_tokens: Scalar count of those whose importance weight was capped or set to 0; None: there is no weight.
    """

    loss: torch.Tensor
    clipped_tokens: torch.Tensor
    limited_tokens: torch.Tensor | None = None


def token_log_probs(
    logits: torch.Tensor,
    token_ids: torch.Tensor,
    temperature: float = 1.0,
    chunk_elements: int = CHUNK_ELEMENTS,
    *,
    entropy_gradient: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each token under softmax(logits / temperature), and the entropy at its position.

    Works through the logits in chunks in both passes, so that no float32 copy of all of them ever exists.

    Args:
        logits: [B, R, V] in any floating type; position t predicts token t of ``token_ids``.
        token_ids: [B, R] int64; or [B, R, K], for K tokens at each position.
        temperature: The temperature the tokens were sampled at.
        chunk_elements: Most logits to hold in float32 at once.
        entropy_gradient: Whether entropies are differentiable; where they are a metric only, that would be for nothing.

    Returns:
        Log-probabilities, shaped like ``token_ids``, differentiable; and entropies [B, R] in nats.
        float32, or float64 for float64 logits.
    """
    candidates = token_ids if token_ids.dim() == 3 else token_ids.unsqueeze(-1)
    log_probs, entropies = _TokenLogProbs.apply(logits, candidates, temperature, chunk_elements, entropy_gradient)
    return log_probs.view(token_ids.shape), entropies


class _TokenLogProbs(torch.autograd.Function):
    """d log p(token) / d logits = (one_hot(token) - softmax) / temperature, recomputed by chunks; ids are [B, R, K].

    d entropy / d logits = -softmax (log softmax + entropy) / temperature.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        token_ids: torch.Tensor,
        temperature: float,
        chunk_elements: int,
        entropy_gradient: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # in bf16 a normaliser of 16 to 32 moves in steps of 1/8, and every log-probability with it
        compute = torch.promote_types(logits.dtype, torch.float32)
        log_probs = torch.empty(token_ids.shape, dtype=compute, device=logits.device)
        log_normalisers = torch.empty(token_ids.shape[:2], dtype=compute, device=logits.device)
        entropies = torch.empty_like(log_normalisers)
        # one float32 copy of [B, R, V] is the largest tensor of a step: 16 rows of 4,096 tokens and 152,000 words are
        # 37 GiB
        for chunk in _chunks(logits.shape, chunk_elements):
            scaled = logits[chunk].to(compute) / temperature
            log_normaliser = scaled.logsumexp(dim=-1)
            log_probs[chunk] = scaled.gather(-1, token_ids[chunk]) - log_normaliser.unsqueeze(-1)
            # H = log Z - sum p x over the scaled logits x, since log p = x - log Z
            entropies[chunk] = log_normaliser - ((scaled - log_normaliser.unsqueeze(-1)).exp() * scaled).sum(dim=-1)
            log_normalisers[chunk] = log_normaliser
        # the logits in their own type: the softmax is made of them again, and no float32 [B, R, V] waits meanwhile
        ctx.save_for_backward(logits, token_ids, log_normalisers, *([entropies] if entropy_gradient else []))
        ctx.temperature, ctx.chunk_elements = temperature, chunk_elements
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropies)
        return log_probs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
        logits, token_ids, log_normalisers, *entropies = ctx.saved_tensors
        grad_logits = torch.empty_like(logits)
        # the entropy's gradient needs log p and p at once, so chunks are half as large
        for chunk in _chunks(logits.shape, ctx.chunk_elements // (1 + len(entropies))):
            scaled = logits[chunk].to(log_normalisers.dtype) / ctx.temperature
            upstream = grads[0][chunk]
            entropy = (entropies[0][chunk].unsqueeze(-1), grads[1][chunk].unsqueeze(-1)) if entropies else None
            grad = softmax_gradient(scaled.sub_(log_normalisers[chunk].unsqueeze(-1)), upstream, entropy)
            # added, not set: of K candidates two may be one token, such as the sampled one and the teacher's likeliest
            grad.scatter_add_(-1, token_ids[chunk], upstream)
            grad_logits[chunk] = grad / ctx.temperature
        return grad_logits, None, None, None, None


def softmax_gradient(
    log_softmax: torch.Tensor, upstream: torch.Tensor, entropy: tuple[torch.Tensor, torch.Tensor] | None
) -> torch.Tensor:
    """What reaches the logits [..., V] through their softmax p: -p (sum of ``upstream`` + g (log p + H)).

    Args:
        log_softmax: [..., V]; the result takes its place. With ``entropy``, one more tensor of its size is there.
        upstream: [..., K], the gradient by the log-probability of each of K tokens, whose own place is not in this.
        entropy: The entropy H and the gradient g by it, both [..., 1]; None: no gradient comes by that way.
    """
    weight = -upstream.sum(dim=-1, keepdim=True)
    if entropy is None:
        return log_softmax.exp_().mul_(weight)
    value, pull = entropy
    softmax = log_softmax.exp()
    return log_softmax.add_(value).mul_(-pull).add_(weight).mul_(softmax)


def _chunks(shape: torch.Size, chunk_elements: int) -> Iterator[tuple[slice, slice]]:
    """Cut [B, R, V] into (samples, positions) blocks of about ``chunk_elements``: whole samples where they fit."""
    num_samples, num_positions, vocabulary = shape
    positions = max(1, min(num_positions, chunk_elements // vocabulary))
    samples = max(1, chunk_elements // (positions * vocabulary)) if positions == num_positions else 1
    for first in range(0, num_samples, samples):
        for start in range(0, num_positions, positions):
            yield slice(first, first + samples), slice(start, start + positions)


def policy_loss(
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor,
    engine_log_probs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    surrogate: Surrogate,
    importance: Truncation,
    aggregation: Aggregation,
    denominator: float | None = None,
    moved: torch.Tensor | None = None,
) -> PolicyLoss:
    """The surrogate of GRPO (Shao et al. 2024) or one of its variants: the mean of -w * s.

    w is the truncated weight between trainer and engine, s the surrogate of each token (both in ``trainers.ratios``).
    Where each batch is used for one optimizer step, ``old_log_probs`` is ``log_probs.detach()``: the ratio is 1 and
    only its gradient counts.

    Args:
        log_probs: [B, R], differentiable.
        old_log_probs: [B, R], of the trainer's policy at the start of the step.
        engine_log_probs: [B, R], as the engine reported them.
        advantages: [B, R].
        mask: [B, R] boolean.
        surrogate: What each token gains.
        importance: How w is bounded.
        aggregation: See ``aggregate``.
        denominator: See ``aggregate``.
        moved: [B, R] boolean, the tokens of which s counts; others do in the mean alone. None: all.
    """
    # detached: where a batch makes one step, old is the policy itself, and its gradient would cancel the ratio's
    tokens = Tokens(log_probs, old_log_probs.detach(), engine_log_probs, advantages, mask)
    gained, clipped = surrogate(tokens)
    # a user's own surrogate may say anything outside the mask, and 0 times NaN is NaN
    gained = gained.masked_fill(~(mask if moved is None else moved), 0.0)
    # of the old policy: w is about two kernels under one policy, p / p_old about how far that has moved since
    weight, limited = importance_weight(old_log_probs.detach(), engine_log_probs, mask, importance)
    loss = aggregate(-weight * gained, mask, aggregation, denominator)
    return PolicyLoss(loss, clipped.sum(), limited.sum())


def kl_estimate(
    log_probs: torch.Tensor, reference_log_probs: torch.Tensor, kind: Literal["k1", "k2", "k3"]
) -> torch.Tensor:
    """Estimate of KL(policy || reference) at each sampled token, with d = log p - log p_ref (Schulman 2020).

    ``k1`` = d is unbiased but its gradient is zero in expectation, so it is no use as a loss; ``k2`` = d^2 / 2 has the
    right gradient on-policy; ``k3`` = exp(-d) - 1 + d is unbiased, never negative and of low variance.

    Args:
        log_probs: Any shape, differentiable.
        reference_log_probs: The same shape.
        kind: Which estimator.
    """
    # bounded first: exp of one token's huge difference would be inf in k3, and the whole batch's mean with it
    difference = (log_probs - reference_log_probs).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    if kind == "k1":
        return difference
    # expm1: where d is small, exp(-d) - 1 loses its digits to the 1, and k3 is of the order of d squared
    return difference.square() / 2 if kind == "k2" else torch.expm1(-difference) + difference


def value_loss(
    values: torch.Tensor,
    old_values: torch.Tensor,
    returns: torch.Tensor,
    mask: torch.Tensor,
    *,
    value_clip: float,
    denominator: float | None = None,
) -> PolicyLoss:
    """The critic's clipped loss: half the mean over tokens of max((V - R)^2, (clip(V, V_old ± value_clip) - R)^2).

    The clipping is that of the PPO implementation (Schulman et al. 2017; Engstrom et al. 2020 describe it).

    Args:
        values: [B, R], differentiable.
        old_values: [B, R], before the step.
        returns: [B, R].
        mask: [B, R] boolean.
        value_clip: Bound of |V - V_old|; 0: none.
        denominator: See ``aggregate``.
    """
    # the larger of both: a value that has moved further than the bound has no gradient that moves it on
    plain = (values - returns).square()
    bounded = old_values + (values - old_values).clamp(-value_clip, value_clip) if value_clip else values
    clipped = (bounded - returns).square()
    worst = torch.maximum(plain, clipped).masked_fill(~mask, 0.0)
    # the half is that of OpenAI's baselines and of verl: without it their learning rates mean another step here
    return PolicyLoss(0.5 * aggregate(worst, mask, token_mean, denominator), ((clipped > plain) & mask).sum())


def aggregate(
    values: torch.Tensor, mask: torch.Tensor, aggregation: Aggregation, denominator: float | None = None
) -> torch.Tensor:
    """Fold [B, R] into a scalar: the weighted sum of all tokens over what the samples count together.

    ``denominator`` stands for what all samples of the global batch count (``trainers.data.batch.whole``), so that the
    sum over micro-batches and ranks is that batch's mean; without it, those of ``mask`` are the batch, R being the
    limit of response tokens.
    """
    chosen = mask.to(values.dtype)
    weights, counts = aggregation(chosen.sum(dim=1), mask.shape[1])
    total = ((values * chosen).sum(dim=1) * weights).sum()
    # at least 1: a batch without a chosen token has the loss 0, and not 0 / 0
    return total / (counts.sum().clamp(min=1.0) if denominator is None else denominator)


def token_mean(lengths: torch.Tensor, _limit: int) -> Shares:
    """The mean over all tokens: long samples weigh more (DAPO, Yu et al. 2025)."""
    return torch.ones_like(lengths), lengths


def sequence_mean(lengths: torch.Tensor, _limit: int) -> Shares:
    """The mean over samples, those without a token left out, of their tokens' mean (Shao et al. 2024)."""
    return 1.0 / lengths.clamp(min=1.0), (lengths > 0).to(lengths.dtype)


def sequence_sum(lengths: torch.Tensor, _limit: int) -> Shares:
    """The mean over samples of their tokens' sum, as of whole samples' log-probabilities (Ahmadian et al. 2024)."""
    return torch.ones_like(lengths), torch.ones_like(lengths)


def dr_grpo(lengths: torch.Tensor, limit: int) -> Shares:
    """The sum over all tokens, over samples times the limit: no token weighs by its sample's length (Liu et al. 2025).

    A constant, so that samples without a token count too, as in TRL.
    """
    if limit < 1:
        raise ValueError("the aggregation dr_grpo needs the limit of response tokens")
    return torch.ones_like(lengths), torch.full_like(lengths, limit)
