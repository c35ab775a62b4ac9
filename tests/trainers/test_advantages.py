"""Group advantages against closed forms, and that they, with the loss, teach: up, not down."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import pytest
import torch
from variant_support import AGGREGATION, Clip

from trainers.advantages import STD_EPSILON, Groups, centered, differ, standard
from trainers.losses import policy_loss, token_log_probs
from trainers.ratios import Truncation

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.trainers


def of(rewards: torch.Tensor) -> Groups:
    """Groups of samples of equal length."""
    return Groups(rewards, torch.ones_like(rewards))


def test_standard_advantages_divide_by_the_sample_deviation_of_the_group() -> None:
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0, 1.0], [0.25, 4.0, -1.0, 2.0, 0.0]], dtype=torch.float64)
    result = standard(of(rewards))
    for row, group in zip(result.tolist(), rewards.tolist(), strict=True):
        mean, deviation = statistics.fmean(group), statistics.stdev(group)
        assert row == pytest.approx([(reward - mean) / (deviation + STD_EPSILON) for reward in group], abs=1e-14)


def test_centered_advantages_only_take_the_mean_off() -> None:
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
    assert centered(of(rewards)).tolist() == [[0.5, -0.5, -0.5, 0.5]]


@pytest.mark.parametrize("kind", [standard, centered])
@pytest.mark.parametrize("rewards", [[[1.0, 1.0, 1.0]], [[0.3]]])
def test_groups_without_difference_have_no_advantage(
    kind: Callable[[Groups], torch.Tensor], rewards: list[list[float]]
) -> None:
    assert kind(of(torch.tensor(rewards))).abs().sum() == 0.0


def test_groups_teach_where_rewards_differ() -> None:
    assert differ(torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])).tolist() == [False, True, False]


def learn(sign: float, aggregation: str, clip: Clip) -> tuple[float, float]:
    """A table of logits learns which of 8 tokens each of 4 contexts wants; its chance at the start and at the end."""
    torch.manual_seed(0)
    wanted, groups, samples = torch.tensor([3, 1, 7, 0]), 4, 16
    table = torch.zeros(groups, 8, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([table], lr=5.0)

    def chance() -> float:
        return float(table.detach().softmax(-1).gather(1, wanted.unsqueeze(1)).mean())

    before = chance()
    for _ in range(60):
        tokens = torch.multinomial(table.detach().softmax(-1), samples, replacement=True)
        advantages = sign * standard(of((tokens == wanted.unsqueeze(1)).double())).reshape(-1, 1)
        logits = table.repeat_interleave(samples, dim=0).unsqueeze(1)
        log_probs, _ = token_log_probs(logits, tokens.reshape(-1, 1))
        mask = torch.ones_like(log_probs, dtype=torch.bool)
        old = log_probs.detach()
        result = policy_loss(
            log_probs, old, old, advantages, mask,
            surrogate=clip, importance=Truncation(2.0), aggregation=AGGREGATION[aggregation],
        )  # fmt: skip
        optimizer.zero_grad()
        result.loss.backward()
        optimizer.step()
    return before, chance()


@pytest.mark.parametrize(
    ("aggregation", "clip"),
    [
        ("token", Clip(0.2, 0.272)),
        ("sequence", Clip(0.2, 0.272, dual=3.0)),
        ("sequence", Clip(3e-4, 4e-4, "sequence")),
        ("dr_grpo", Clip(1.0, 0.272, "cispo")),
    ],
)
def test_policy_learns_and_with_a_broken_sign_unlearns(aggregation: str, clip: Clip) -> None:
    before, after = learn(+1.0, aggregation, clip)
    assert before == pytest.approx(1 / 8)
    assert after > 0.9
    assert learn(-1.0, aggregation, clip)[1] < 0.01
