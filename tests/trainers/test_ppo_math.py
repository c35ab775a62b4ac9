"""GAE, value loss, KL estimators and whitening against closed forms in float64, values and gradients."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainers.advantages import generalised_advantages, token_rewards, whiten
from trainers.losses import kl_estimate, value_loss
from trainers.ppo import LEAST_FACTOR, Ppo

pytestmark = pytest.mark.trainers

LENGTHS = torch.tensor([5, 2, 0, 4])
MASK = torch.arange(5) < LENGTHS.unsqueeze(1)


def random_values(seed: int, count: int = 1) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(4, 5, generator=generator, dtype=torch.float64) for _ in range(count)]


@pytest.mark.parametrize(("gamma", "gae_lambda"), [(1.0, 0.95), (0.9, 0.0), (1.0, 1.0), (0.99, 0.5)])
def test_advantages_are_the_weighted_sums_of_what_came_unforeseen(gamma: float, gae_lambda: float) -> None:
    rewards, values = random_values(3, 2)
    advantages, returns = generalised_advantages(rewards, values, MASK, gamma, gae_lambda)
    for row, length in enumerate(LENGTHS.tolist()):
        r, v = rewards[row].tolist(), [*values[row, :length].tolist(), 0.0]
        deltas = [r[t] + gamma * v[t + 1] - v[t] for t in range(length)]
        for t in range(length):
            expected = sum((gamma * gae_lambda) ** (k - t) * deltas[k] for k in range(t, length))
            assert float(advantages[row, t]) == pytest.approx(expected, abs=1e-12)
            assert float(returns[row, t]) == pytest.approx(expected + v[t], abs=1e-12)
    assert float(advantages[~MASK].abs().sum()) == 0.0
    assert float(returns[~MASK].abs().sum()) == 0.0


def test_with_lambda_one_the_return_is_the_sum_of_all_rewards_to_come() -> None:
    rewards, values = random_values(4, 2)
    _, returns = generalised_advantages(rewards, values, MASK, 1.0, 1.0)
    for row, length in enumerate(LENGTHS.tolist()):
        for t in range(length):
            assert float(returns[row, t]) == pytest.approx(float(rewards[row, t:length].sum()), abs=1e-12)


def test_what_stands_outside_the_mask_has_no_influence_on_advantages() -> None:
    rewards, values = random_values(5, 2)
    clean = generalised_advantages(rewards, values, MASK, 1.0, 0.9)
    noise = torch.where(MASK, torch.zeros(()).double(), torch.tensor(1e6).double())
    dirty = generalised_advantages(rewards + noise, values - noise, MASK, 1.0, 0.9)
    assert torch.equal(clean[0], dirty[0])
    assert torch.equal(clean[1], dirty[1])


def test_a_sample_is_paid_at_its_last_token_and_fined_at_each() -> None:
    kl = torch.full((4, 5), 0.5, dtype=torch.float64)
    found = token_rewards(torch.tensor([1.0, 2.0, 9.0, -1.0], dtype=torch.float64), MASK, kl, 0.1)
    expected = [
        [-0.05, -0.05, -0.05, -0.05, 0.95],
        [-0.05, 1.95, 0, 0, 0],
        [0, 0, 0, 0, 0],
        [-0.05, -0.05, -0.05, -1.05, 0],
    ]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), atol=1e-12, rtol=0)


@pytest.mark.parametrize("value_clip", [0.0, 0.2])
def test_value_loss_is_the_objective_written_out(value_clip: float) -> None:
    values, old, returns = random_values(6, 3)
    result = value_loss(values, old, returns, MASK, value_clip=value_clip)
    terms, clipped = [], 0
    for row, length in enumerate(LENGTHS.tolist()):
        for t in range(length):
            v, o, r = float(values[row, t]), float(old[row, t]), float(returns[row, t])
            bounded = o + min(max(v - o, -value_clip), value_clip) if value_clip else v
            terms.append(max((v - r) ** 2, (bounded - r) ** 2))
            clipped += (bounded - r) ** 2 > (v - r) ** 2
    assert float(result.loss) == pytest.approx(0.5 * sum(terms) / len(terms), abs=1e-12)
    assert int(result.clipped_tokens) == clipped


def test_value_loss_gradient_by_finite_differences() -> None:
    values, old, returns = random_values(8, 3)
    values.requires_grad_()
    assert torch.autograd.gradcheck(lambda v: value_loss(v, old, returns, MASK, value_clip=0.2).loss, (values,))


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl_estimators_are_their_formulas(kind: str) -> None:
    p, q = random_values(9, 2)
    found = kl_estimate(p, q, kind)  # type: ignore[arg-type]
    for a, b, value in zip(p.flatten().tolist(), q.flatten().tolist(), found.flatten().tolist(), strict=True):
        d = a - b
        assert value == pytest.approx({"k1": d, "k2": d * d / 2, "k3": math.exp(-d) - 1 + d}[kind], abs=1e-12)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_on_samples_of_the_policy_the_estimators_mean_the_kl(kind: str) -> None:
    """The expectation is exact: the sum over the vocabulary, weighted by the policy."""
    p, q = (
        torch.randn(7, generator=torch.Generator().manual_seed(s), dtype=torch.float64).log_softmax(0) for s in (1, 2)
    )
    expected = float((p.exp() * (p - q)).sum())
    assert float((p.exp() * kl_estimate(p, q, kind)).sum()) == pytest.approx(expected, abs=1e-12)  # type: ignore[arg-type]


def test_the_gradient_of_k2_is_that_of_the_kl_and_that_of_k1_vanishes() -> None:
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(7, generator=generator, dtype=torch.float64, requires_grad=True)
    reference = torch.randn(7, generator=generator, dtype=torch.float64).log_softmax(0)
    exact = (logits.log_softmax(0).exp() * (logits.log_softmax(0) - reference)).sum()
    [wanted] = torch.autograd.grad(exact, logits)
    for kind, expected in (("k2", wanted), ("k1", torch.zeros_like(wanted))):
        p = logits.log_softmax(0)
        mean = (p.detach().exp() * kl_estimate(p, reference, kind)).sum()  # type: ignore[arg-type]
        [found] = torch.autograd.grad(mean, logits)
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_whitened_values_have_mean_0_and_deviation_1_over_tokens() -> None:
    [values] = random_values(11)
    found = whiten(values, MASK)
    assert float(found[MASK].mean()) == pytest.approx(0.0, abs=1e-12)
    assert float(found[MASK].std()) == pytest.approx(1.0, abs=1e-5)
    assert float(found[~MASK].abs().sum()) == 0.0


def test_whitening_is_verls_to_the_last_digits() -> None:
    [values] = random_values(12)
    count = MASK.sum()
    mean = (values * MASK).sum() / count
    variance = ((values - mean).square() * MASK).sum() / (count - 1)
    expected = (values - mean) * torch.rsqrt(variance + 1e-8)
    torch.testing.assert_close(whiten(values, MASK)[MASK], expected[MASK], atol=1e-12, rtol=0)


def test_the_kl_coefficient_stays_a_penalty_however_small_its_horizon() -> None:
    ppo = SimpleNamespace(kl="reward", kl_target=0.1, kl_horizon=100)
    run: Any = SimpleNamespace(layout=SimpleNamespace(ppo=ppo), kl_coefficient=0.3)
    assert Ppo.next_kl_coefficient(run, 0.0, 64) == pytest.approx(0.3 * (1 - 0.2 * 0.64))
    assert Ppo.next_kl_coefficient(run, 0.0, 1024) == pytest.approx(0.3 * LEAST_FACTOR)
    assert Ppo.next_kl_coefficient(run, 0.2, 1024) == pytest.approx(0.3 * (1 + 0.2 * 10.24))
