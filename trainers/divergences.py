"""Divergences between student and teacher at each position, over the teacher's K likeliest tokens and all the others.

What is not among the K is one further outcome, so both sides are distributions over K + 1 outcomes. That never
overstates the divergence over the whole vocabulary (data processing inequality), and is exact where K is all of it.
"""

from __future__ import annotations

from typing import Literal

import torch


def divergence(
    student: torch.Tensor,
    teacher: torch.Tensor,
    kind: Literal["reverse_kl", "forward_kl", "jsd"],
    jsd_beta: float = 0.5,
) -> torch.Tensor:
    """The divergence at each position, [B, R].

    Args:
        student: [B, R, K] log-probabilities of the teacher's likeliest tokens by the student; differentiable.
        teacher: [B, R, K] log-probabilities of the same tokens by the teacher.
        kind: ``reverse_kl`` = KL(student || teacher), which seeks a mode; ``forward_kl`` = KL(teacher || student),
            which covers all; ``jsd`` the generalised Jensen-Shannon divergence of GKD (Agarwal et al. 2024).
        jsd_beta: Weight of the teacher in the mixture m = beta p_T + (1 - beta) p_S: beta KL(p_T || m) +
            (1 - beta) KL(p_S || m).
    """
    q, p = with_rest(student), with_rest(teacher)
    if kind == "reverse_kl":
        return _kl(q, p)
    if kind == "forward_kl":
        return _kl(p, q)
    logs = torch.log(torch.tensor([jsd_beta, 1.0 - jsd_beta], dtype=q.dtype, device=q.device))
    # in logarithms: the mixture of two probabilities that both underflow would be 0, and its logarithm -inf
    mixture = torch.logsumexp(torch.stack([p + logs[0], q + logs[1]]), dim=0)
    return jsd_beta * _kl(p, mixture) + (1.0 - jsd_beta) * _kl(q, mixture)


def with_rest(log_probs: torch.Tensor) -> torch.Tensor:
    """[…, K] log-probabilities with that of all other tokens together behind them: […, K + 1]."""
    smallest = torch.finfo(log_probs.dtype).eps
    # rounding can bring the K together to 1 or above, and the rest's logarithm to NaN
    rest = (1.0 - log_probs.exp().sum(dim=-1, keepdim=True)).clamp(min=smallest)
    return torch.cat([log_probs, rest.log()], dim=-1)


def _kl(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """KL(p || q) of log-probabilities over the last dimension."""
    # exact over all outcomes: where p is the student, the gradient goes through its weights too, without REINFORCE
    return (p.exp() * (p - q)).sum(dim=-1)
