"""Group advantages against closed forms."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest
import torch

from trainers.advantages import STD_EPSILON, Groups, centered, differ, standard

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


@pytest.mark.parametrize("reward", [0.6, 0.97, 13.37])
def test_equal_rewards_are_worth_nothing_though_their_mean_is_rounded(reward: float) -> None:
    for samples in range(2, 64):
        rewards = torch.tensor([[reward] * samples])
        assert not standard(Groups(rewards, torch.ones_like(rewards))).any(), samples
