"""Sums over the micro-batches of one rank's step, folded into its report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from trainers.data.batch import RowTensors
    from trainers.losses import PolicyLoss


@dataclass(frozen=True)
class StepReport:
    """What one rank did in one step; sums, so that ranks can be added up.

    Attributes:
        loss: This rank's share of the loss.
        grad_norm: Norm of the whole gradient before clipping; 0 where no step was made.
        tokens: Response tokens whose log-probabilities were looked at.
        trained_tokens: Those among them that the gradient was taken of.
        clipped_tokens: Those among these where the ratio was clipped.
        entropy_sum: Sum over ``tokens``, in nats.
        parity_max_abs: Largest |trainer - engine log-prob| over ``tokens``, before the optimizer step.
        learning_rate: That of this step.
        seconds: Time of the whole step in this process.
        memory_gib: Peak of the card, or resident memory of the process where there is none.
    """

    loss: float
    grad_norm: float
    tokens: int
    trained_tokens: int
    clipped_tokens: int
    entropy_sum: float
    parity_max_abs: float
    learning_rate: float
    seconds: float
    memory_gib: float


class Tally:
    """What a rank adds up while it works through its rows; tensors stay on the device until the report."""

    def __init__(self) -> None:
        self._tokens: list[torch.Tensor] = []
        self._trained_tokens: list[torch.Tensor] = []
        self._loss: list[torch.Tensor] = []
        self._clipped: list[torch.Tensor] = []
        self._entropy: list[torch.Tensor] = []
        self._parity: list[torch.Tensor] = []

    def measure(self, rows: RowTensors, log_probs: torch.Tensor, entropies: torch.Tensor) -> None:
        """Count what every sampled token tells: entropy, and how far trainer and engine are apart.

        Args:
            rows: The micro-batch.
            log_probs: [B, R] of the trainer, without gradient.
            entropies: [B, R] in nats.
        """
        mask = rows.response_mask
        self._tokens.append(mask.sum())
        self._entropy.append((entropies * mask).sum())
        self._parity.append(((log_probs - rows.engine_log_probs).abs() * mask).amax())

    def train(self, rows: RowTensors, result: PolicyLoss) -> None:
        """Count what the gradient was taken of."""
        self._trained_tokens.append(rows.response_mask.sum())
        self._loss.append(result.loss.detach())
        self._clipped.append(result.clipped_tokens)

    def report(self, grad_norm: float, learning_rate: float, seconds: float, memory_gib: float) -> StepReport:
        """Fold the sums."""
        import torch

        return StepReport(
            loss=_sum(self._loss),
            grad_norm=grad_norm,
            tokens=int(_sum(self._tokens)),
            trained_tokens=int(_sum(self._trained_tokens)),
            clipped_tokens=int(_sum(self._clipped)),
            entropy_sum=_sum(self._entropy),
            parity_max_abs=float(torch.stack(self._parity).amax()) if self._parity else 0.0,
            learning_rate=learning_rate,
            seconds=seconds,
            memory_gib=memory_gib,
        )


def _sum(values: list[torch.Tensor]) -> float:
    return float(sum(float(value) for value in values))
