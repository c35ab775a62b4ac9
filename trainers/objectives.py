"""What each algorithm minimises, as the learner calls it: from a model's scores and the columns of rows to a loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from trainers.data.batch import (
    ADVANTAGES,
    ENGINE_LOG_PROBS,
    OLD_LOG_PROBS,
    REFERENCE_LOG_PROBS,
    TEACHER_LOG_PROBS,
    TEACHER_TOP_LOG_PROBS,
)
from trainers.divergences import divergence
from trainers.losses import PolicyLoss, aggregate, kl_estimate, policy_loss, token_mean
from trainers.ratios import Truncation, highest, token
from trainers.variants import variant

if TYPE_CHECKING:
    import torch

    from rltui.layout.algorithms import Grpo, Ppo
    from rltui.layout.schema import Layout
    from trainers.data.tensors import RowTensors
    from trainers.losses import Aggregation
    from trainers.roles.forward import Scores

DUAL_CLIP = 3.0
"""Most that a ratio counts for where the advantage is negative (Ye et al. 2020), where no key of the layout says."""

Objective: TypeAlias = "Callable[[Scores, RowTensors, float], PolicyLoss]"
"""(scores, rows, denominator of the mini-batch) to the loss of these rows."""


def objective(layout: Layout) -> Objective:
    """The objective of the layout's algorithm."""
    return {"grpo": grpo_objective, "ppo": ppo_objective, "opd": opd_objective}[layout.algorithm](layout)


def grpo_objective(layout: Layout) -> Objective:
    """The objective of ``layout.grpo``: its surrogate, and the KL to the reference where it is part of the loss."""
    settings = layout.grpo
    surrogate, aggregation = variant(settings, "ratio"), variant(settings, "aggregation")
    estimator = variant(settings, "kl_estimator")
    importance = Truncation(settings.importance_cap, settings.importance, settings.importance_low)

    def loss(scores: Scores, rows: RowTensors, denominator: float) -> PolicyLoss:
        result = policy_loss(
            scores.log_probs,
            _old_log_probs(scores, rows),
            rows.columns[ENGINE_LOG_PROBS],
            rows.columns[ADVANTAGES],
            rows.response_mask,
            surrogate=surrogate,
            importance=importance,
            aggregation=aggregation,
            denominator=denominator,
            moved=highest(scores.entropies, rows.response_mask, settings.top_entropy_quantile),
        )
        return _regularised(result, settings, estimator, scores, rows, denominator, aggregation)

    return loss


def ppo_objective(layout: Layout) -> Objective:
    """The objective of ``layout.ppo``: the clipped surrogate over tokens, and the KL where it is part of the loss."""
    settings = layout.ppo
    estimator = partial(kl_estimate, kind=settings.kl_estimator)

    def loss(scores: Scores, rows: RowTensors, denominator: float) -> PolicyLoss:
        result = _clipped(scores, rows, rows.columns[ADVANTAGES], denominator, settings.clip, settings.importance_cap)
        return _regularised(result, settings, estimator, scores, rows, denominator, token_mean)

    return loss


def opd_objective(layout: Layout) -> Objective:
    """The objective of ``layout.opd``.

    ``sampled_token``: the log-ratio teacher/policy of each sampled token is that token's advantage, discounted at once
    (its policy gradient is that of the reverse KL at this position; Lu et al. 2025, Thinking Machines). ``top_k``: the
    divergence itself over the teacher's likeliest tokens (Agarwal et al. 2024), beside the rewards' policy gradient. Of
    answers that no engine sampled, only the divergence: there is no ratio to what sampled them.
    """
    settings = layout.opd

    def loss(scores: Scores, rows: RowTensors, denominator: float) -> PolicyLoss:
        if ENGINE_LOG_PROBS not in rows.columns:
            # 0 as a tensor on the card: counts are read once a step, and each read would wait for the card
            return PolicyLoss(apart(scores, rows, denominator), rows.response_mask.sum() * 0)
        worth = rows.columns[ADVANTAGES]
        if settings.estimator == "sampled_token":
            # of the old policy, which has no gradient: an advantage must not move with the weights that it judges
            worth = worth + settings.kl_coefficient * (rows.columns[TEACHER_LOG_PROBS] - _old_log_probs(scores, rows))
        result = _clipped(scores, rows, worth, denominator, settings.clip, settings.importance_cap)
        if settings.estimator == "sampled_token":
            return result
        return replace(result, loss=result.loss + apart(scores, rows, denominator))

    def apart(scores: Scores, rows: RowTensors, denominator: float) -> torch.Tensor:
        assert scores.candidates is not None
        found = divergence(
            scores.candidates, rows.columns[TEACHER_TOP_LOG_PROBS], settings.divergence, settings.jsd_beta
        )
        mean = aggregate(found.masked_fill(~rows.response_mask, 0.0), rows.response_mask, token_mean, denominator)
        return settings.kl_coefficient * mean

    return loss


def _clipped(
    scores: Scores, rows: RowTensors, advantages: torch.Tensor, denominator: float, clip: float, importance_cap: float
) -> PolicyLoss:
    """The clipped surrogate with equal bounds, averaged over tokens."""
    return policy_loss(
        scores.log_probs,
        _old_log_probs(scores, rows),
        rows.columns[ENGINE_LOG_PROBS],
        advantages,
        rows.response_mask,
        surrogate=partial(token, clip_low=clip, clip_high=clip, dual_clip=DUAL_CLIP),
        importance=Truncation(importance_cap),
        aggregation=token_mean,
        denominator=denominator,
    )


def _regularised(
    result: PolicyLoss,
    settings: Grpo | Ppo,
    estimator: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    scores: Scores,
    rows: RowTensors,
    denominator: float,
    aggregation: Aggregation,
) -> PolicyLoss:
    """The loss with the mean KL to the reference, and less the entropy bonus, where the settings have them.

    The bonus keeps a policy from settling too early (Mnih et al. 2016).
    """
    others, loss = ~rows.response_mask, result.loss
    # filled before the estimate: what stands outside the mask may be anything, and 0 times inf is NaN in the gradient
    if settings.kl == "loss" and settings.kl_coefficient:
        policy, reference = scores.log_probs, rows.columns[REFERENCE_LOG_PROBS]
        kl = estimator(policy.masked_fill(others, 0.0), reference.masked_fill(others, 0.0))
        loss = loss + settings.kl_coefficient * aggregate(kl, rows.response_mask, aggregation, denominator)
    if settings.entropy_coefficient:
        entropies = scores.entropies.masked_fill(others, 0.0)
        mean = aggregate(entropies, rows.response_mask, aggregation, denominator)
        loss = loss - settings.entropy_coefficient * mean
    return replace(result, loss=loss)


def _old_log_probs(scores: Scores, rows: RowTensors) -> torch.Tensor:
    """Those of the policy at the step's start, which is this one where a batch is used for one optimizer step."""
    old = rows.columns.get(OLD_LOG_PROBS)
    return scores.log_probs.detach() if old is None else old
