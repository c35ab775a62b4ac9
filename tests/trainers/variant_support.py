"""Bundled variants of GRPO with their settings, numbers to call them with, and a toy that learns by them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from trainer_support import LAYOUT

from rltui.layout.load import load_layout
from trainers.advantages import Groups
from trainers.losses import policy_loss, token_log_probs
from trainers.ratios import Tokens, Truncation
from trainers.variants import VARIANTS, variant

if TYPE_CHECKING:
    from rltui.layout.algorithms import Grpo
    from trainers.losses import Aggregation
    from trainers.ratios import Gains

AGGREGATION: dict[str, Aggregation] = VARIANTS["aggregation"]
TOKEN_MEAN = AGGREGATION["token"]


@dataclass(frozen=True)
class Clip:
    """A surrogate with two bounds."""

    low: float
    high: float
    ratio: str = "token"
    dual: float = 0.0

    def __call__(self, tokens: Tokens) -> Gains:
        settings: dict[str, Any] = {"clip_low": self.low, "clip_high": self.high}
        if self.ratio in ("token", "sequence"):
            settings["dual_clip"] = self.dual
        gains: Gains = partial(VARIANTS["ratio"][self.ratio], **settings)(tokens)
        return gains


REWARDS = [[1.0, 0.0, 0.0, 0.5], [0.25, 4.0, -1.0, 2.0], [1.0, 1.0, 1.0, 1.0]]
LENGTHS = [[5, 2, 1, 4], [3, 3, 7, 1], [2, 4, 6, 1]]


def grpo(*words: str) -> Grpo:
    """The section of a layout with these settings."""
    return load_layout(LAYOUT, [f"grpo.{word}" for word in words]).layout.grpo


def groups(**more: Any) -> Groups:
    return Groups(torch.tensor(REWARDS).double(), torch.tensor(LENGTHS), **more)


def off_policy(seed: int) -> Tokens:
    """Tokens of four ragged samples, each with one advantage, and a policy that has moved on."""
    source = torch.Generator().manual_seed(seed)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=source, dtype=torch.float64)

    old = -2.0 * torch.rand(4, 5, generator=source, dtype=torch.float64) - 0.1
    mask = torch.arange(5) < torch.tensor([5, 2, 1, 4]).unsqueeze(1)
    return Tokens((old + 0.5 * noise(4, 5)).requires_grad_(), old, old, noise(4, 1).expand(4, 5), mask)


def chance(words: tuple[str, ...], sign: float = 1.0, updates: int = 2) -> float:
    """How likely a table of logits is to say what each of four contexts wants, after 60 steps from 1 in 8."""
    torch.set_num_threads(1)  # so small tensors are only slower with more
    settings = grpo(*words)
    advantage, surrogate, fold = (variant(settings, kind) for kind in ("advantage", "ratio", "aggregation"))
    torch.manual_seed(0)
    wanted, contexts, samples = torch.tensor([3, 1, 7, 0]), 4, 16
    table = torch.zeros(contexts, 8, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([table], lr=1.5)
    for _ in range(60):
        said = torch.multinomial(table.detach().softmax(-1), samples, replacement=True)
        right = (said == wanted.unsqueeze(1)).double()
        judged = Groups(right, torch.ones_like(right), {"answer": (right, 0.9), "small": ((said < 4).double(), 0.1)})
        worth, old = sign * advantage(judged).reshape(-1, 1), None
        for _ in range(updates):
            log_probs, _ = token_log_probs(table.repeat_interleave(samples, dim=0).unsqueeze(1), said.reshape(-1, 1))
            old = log_probs.detach() if old is None else old
            mask = torch.ones_like(log_probs, dtype=torch.bool)
            result = policy_loss(
                log_probs, old, old, worth, mask, surrogate=surrogate, importance=Truncation(2.0), aggregation=fold
            )
            optimizer.zero_grad()
            result.loss.backward()
            optimizer.step()
    return float(table.detach().softmax(-1).gather(1, wanted.unsqueeze(1)).mean())
