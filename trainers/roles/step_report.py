"""Sums over the micro-batches of one rank's step, folded into its report."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainers.data.batch import ENGINE_LOG_PROBS, STALENESS

if TYPE_CHECKING:
    import torch

    from trainers.data.tensors import RowTensors
    from trainers.losses import PolicyLoss
    from trainers.roles.forward import Scores


def worst(values: Iterable[float]) -> float:
    """The largest of ``values``; NaN where one of them is NaN, which ``max`` may overlook."""
    numbers = list(values)
    return math.nan if any(math.isnan(number) for number in numbers) else max(numbers, default=0.0)


@dataclass(frozen=True)
class RankReport:
    """What one rank did in one step, of the policy or of the critic; sums, so that ranks can be added up.

    Attributes:
        loss: This rank's share of the loss, the mean over the optimizer steps made.
        grad_norm: Norm of the whole gradient before clipping, the largest of the steps; 0 where no step was made.
        tokens: Response tokens that were looked at.
        clipped_tokens: Those whose ratio was clipped, or whose value had moved too far.
        overflow_steps: Optimizer steps that were not made because the gradient was not finite.
        loss_scale: By which losses are multiplied in the backward pass; 1 but in fp16.
        began_at: Epoch seconds, by the clock of the rank's node.
        ended_at: Epoch seconds, by the clock of the rank's node.
        memory_gib: Peak of the card, or resident memory of the process where there is none.
    """

    loss: float
    grad_norm: float
    tokens: int
    clipped_tokens: int
    overflow_steps: int
    loss_scale: float
    began_at: float
    ended_at: float
    memory_gib: float


@dataclass(frozen=True)
class StepReport(RankReport):
    """What one rank of the policy did besides.

    Attributes:
        optimizer_steps: Optimizer steps made.
        trained_tokens: Those among ``tokens`` that the gradient was taken of.
        limited_tokens: Those among these where the weight between trainer and engine was capped or set to 0.
        entropy_sum: Sum over ``tokens``, in nats.
        fresh_tokens: Those among ``tokens`` that the policy's own weights sampled.
        parity_abs_sum: Sum over ``fresh_tokens`` of |trainer - engine log-prob|, before the optimizer step.
        mismatch_kl_sum: Sum over ``tokens`` of the estimate k3 of KL(engine || trainer), likewise.
        fresh_mismatch_kl_sum: The same over ``fresh_tokens``.
        parity_max_abs: Largest |trainer - engine log-prob| over ``fresh_tokens``, before the optimizer step.
        learning_rate: That of this step.
    """

    optimizer_steps: int
    trained_tokens: int
    limited_tokens: int
    entropy_sum: float
    fresh_tokens: int
    parity_abs_sum: float
    mismatch_kl_sum: float
    fresh_mismatch_kl_sum: float
    parity_max_abs: float
    learning_rate: float


class StepSums:
    """What a rank adds up while it works through its rows; tensors stay on the device until the report."""

    def __init__(self) -> None:
        self._tokens: list[torch.Tensor] = []
        self._trained_tokens: list[torch.Tensor] = []
        self._loss: list[torch.Tensor] = []
        self._clipped: list[torch.Tensor] = []
        self._entropy: list[torch.Tensor] = []
        self._limited: list[torch.Tensor] = []
        self._fresh_tokens: list[torch.Tensor] = []
        self._parity: list[torch.Tensor] = []
        self._parity_sum: list[torch.Tensor] = []
        self._mismatch_kl: list[torch.Tensor] = []
        self._fresh_mismatch_kl: list[torch.Tensor] = []
        self._grad_norms: list[float] = []
        self._skipped = 0

    def measure(self, rows: RowTensors, scores: Scores) -> None:
        """Count what every sampled token tells: entropy, and how far trainer and engine are apart."""
        from trainers.losses import kl_estimate

        mask, log_probs, entropies = rows.response_mask, scores.log_probs.detach(), scores.entropies.detach()
        self._tokens.append(mask.sum())
        self._entropy.append((entropies * mask).sum())
        engine = rows.columns.get(ENGINE_LOG_PROBS)
        if engine is None:
            return  # no engine sampled these
        # older weights are another policy: how far they are off says nothing about the engine
        fresh = mask & (rows.columns[STALENESS] == 0) if STALENESS in rows.columns else mask
        self._fresh_tokens.append(fresh.sum())
        apart = ((log_probs - engine) * fresh).abs()
        self._parity.append(apart.amax())
        self._parity_sum.append(apart.sum())
        # the engine drew the tokens, so the estimate has no bias for KL(engine || trainer), in this order
        mismatch_kl = kl_estimate(engine, log_probs, "k3")
        self._mismatch_kl.append((mismatch_kl * mask).sum())
        self._fresh_mismatch_kl.append((mismatch_kl * fresh).sum())

    def train(self, rows: RowTensors, result: PolicyLoss) -> None:
        """Count what the gradient was taken of."""
        self._trained_tokens.append(rows.response_mask.sum())
        self._loss.append(result.loss.detach())
        self._clipped.append(result.clipped_tokens)
        if result.limited_tokens is not None:
            self._limited.append(result.limited_tokens)

    def step(self, grad_norm: float | None) -> None:
        """Count an optimizer step with the norm of its gradient; None: it was not made, because of an overflow."""
        if grad_norm is None:
            self._skipped += 1
        else:
            self._grad_norms.append(grad_norm)

    def report(self, learning_rate: float, began_at: float, memory_gib: float, loss_scale: float = 1.0) -> StepReport:
        """The sums of this rank's step as means and maxima."""
        import torch

        return StepReport(
            loss=_sum(self._loss) / max(1, len(self._grad_norms) + self._skipped),
            grad_norm=worst(self._grad_norms),
            optimizer_steps=len(self._grad_norms),
            tokens=int(_sum(self._tokens)),
            trained_tokens=int(_sum(self._trained_tokens)),
            clipped_tokens=int(_sum(self._clipped)),
            limited_tokens=int(_sum(self._limited)),
            entropy_sum=_sum(self._entropy),
            fresh_tokens=int(_sum(self._fresh_tokens)),
            parity_abs_sum=_sum(self._parity_sum),
            mismatch_kl_sum=_sum(self._mismatch_kl),
            fresh_mismatch_kl_sum=_sum(self._fresh_mismatch_kl),
            parity_max_abs=float(torch.stack(self._parity).amax()) if self._parity else 0.0,
            learning_rate=learning_rate,
            overflow_steps=self._skipped,
            loss_scale=loss_scale,
            began_at=began_at,
            ended_at=time.time(),
            memory_gib=memory_gib,
        )


def _sum(values: list[torch.Tensor]) -> float:
    return float(sum(float(value) for value in values))
