"""Log-probabilities and the GRPO objective against closed forms, in float64, values and gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from variant_support import AGGREGATION, TOKEN_MEAN, Clip

from trainers.losses import aggregate, policy_loss, token_log_probs
from trainers.ratios import Truncation, importance_weight

pytestmark = pytest.mark.trainers

CLIP = {"surrogate": Clip(0.2, 0.28), "importance": Truncation(2.0)}
LENGTHS = torch.tensor([5, 2, 1, 4])
MASK = torch.arange(5) < LENGTHS.unsqueeze(1)


def random_batch(seed: int = 7) -> dict[str, torch.Tensor]:
    """Log-probs of four ragged samples: trainer before and after, engine; and advantages of both signs."""
    generator = torch.Generator().manual_seed(seed)
    old = -2.0 * torch.rand(4, 5, generator=generator, dtype=torch.float64) - 0.1
    return {
        "log_probs": old + 0.4 * torch.randn(4, 5, generator=generator, dtype=torch.float64),
        "old_log_probs": old,
        "engine_log_probs": old + 0.5 * torch.randn(4, 5, generator=generator, dtype=torch.float64),
        "advantages": torch.randn(4, 5, generator=generator, dtype=torch.float64),
    }


def straight_loss(batch: dict[str, torch.Tensor], aggregation: str) -> tuple[float, int]:
    """The objective token by token, in plain Python: the loss, and how many tokens were clipped."""
    sums, clipped = [], 0
    for row, length in enumerate(LENGTHS.tolist()):
        terms = []
        for t in range(length):
            advantage = float(batch["advantages"][row, t])
            new, old, engine = (float(batch[k][row, t]) for k in ("log_probs", "old_log_probs", "engine_log_probs"))
            ratio, weight = math.exp(new - old), min(math.exp(old - engine), 2.0)
            bounded = min(max(ratio, 0.8), 1.28)
            clipped += bounded * advantage < ratio * advantage
            terms.append(-weight * min(ratio * advantage, bounded * advantage))
        sums.append(terms)
    if aggregation == "token":
        return sum(map(sum, sums)) / sum(map(len, sums)), clipped
    return sum(sum(terms) / len(terms) for terms in sums) / len(sums), clipped


@pytest.mark.parametrize("aggregation", ["token", "sequence"])
def test_loss_is_the_objective_written_out(aggregation: str) -> None:
    for seed in range(20):
        batch = random_batch(seed)
        result = policy_loss(**batch, mask=MASK, aggregation=AGGREGATION[aggregation], **CLIP)
        loss, clipped = straight_loss(batch, aggregation)
        assert float(result.loss) == pytest.approx(loss, abs=1e-14)
        assert int(result.clipped_tokens) == clipped


@pytest.mark.parametrize("aggregation", ["token", "sequence"])
def test_loss_gradient_is_that_of_finite_differences(aggregation: str) -> None:
    batch = random_batch()
    log_probs = batch.pop("log_probs").requires_grad_()

    def loss(values: torch.Tensor) -> torch.Tensor:
        return policy_loss(values, **batch, mask=MASK, aggregation=AGGREGATION[aggregation], **CLIP).loss

    assert torch.autograd.gradcheck(loss, (log_probs,), eps=1e-7, atol=1e-7)


def test_on_policy_gradient_is_minus_weighted_advantage() -> None:
    """Where the ratio is 1, d loss / d log p = -w A / tokens: the plain policy gradient."""
    batch = random_batch()
    log_probs = batch["old_log_probs"].clone().requires_grad_()
    batch |= {"log_probs": log_probs, "old_log_probs": log_probs.detach()}
    policy_loss(**batch, mask=MASK, aggregation=TOKEN_MEAN, **CLIP).loss.backward()
    weight = (batch["old_log_probs"] - batch["engine_log_probs"]).exp().clamp(max=2.0)
    expected = -weight * batch["advantages"] * MASK / MASK.sum()
    assert log_probs.grad is not None
    torch.testing.assert_close(log_probs.grad, expected, atol=1e-14, rtol=0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "passes"),
    [
        (1.27, 1.0, True),
        (1.29, 1.0, False),
        (0.5, 1.0, True),
        (0.81, -1.0, True),
        (0.79, -1.0, False),
        (3.0, -1.0, True),
    ],
)
def test_clipping_stops_the_gradient_only_where_it_would_go_too_far(
    ratio: float, advantage: float, passes: bool
) -> None:
    log_probs = torch.tensor([[math.log(ratio)]], dtype=torch.float64, requires_grad=True)
    zero, one = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)
    advantages = torch.tensor([[advantage]], dtype=torch.float64)
    result = policy_loss(log_probs, zero, zero, advantages, one, aggregation=TOKEN_MEAN, **CLIP)
    result.loss.backward()
    assert log_probs.grad is not None
    assert bool(log_probs.grad.abs().sum() > 0) is passes
    assert int(result.clipped_tokens) == (not passes)


def test_importance_weight_is_truncated_and_carries_no_gradient() -> None:
    trainer = torch.tensor([[0.0, -1.0, -1.0, 0.0]], requires_grad=True)
    mask = torch.tensor([[True, True, True, False]])
    engine = torch.tensor([[-5.0, -1.0, -0.5, -9.0]])
    weight, limited = importance_weight(trainer, engine, mask, Truncation(2.0))
    assert weight.tolist() == [pytest.approx([2.0, 1.0, math.exp(-0.5), 0.0])]
    assert limited.tolist() == [[True, False, False, False]]
    assert not weight.requires_grad
    weight, limited = importance_weight(trainer, trainer.detach(), mask, Truncation(1.0))
    assert weight.tolist() == [[1.0, 1.0, 1.0, 0.0]]
    assert not limited.any(), "a weight that is the cap was not changed"


@pytest.mark.parametrize("aggregation", ["token", "sequence"])
def test_parts_with_the_whole_batch_denominator_add_up_to_the_whole(aggregation: str) -> None:
    """Micro-batches and ranks, with rows that only fill up: the sum of the parts is the batch's loss."""
    batch = random_batch()
    whole = policy_loss(**batch, mask=MASK, aggregation=AGGREGATION[aggregation], **CLIP).loss
    denominator = float(MASK.sum()) if aggregation == "token" else 4.0
    muted = MASK & (torch.arange(4) < 3).unsqueeze(1)
    parts = [
        policy_loss(
            **{name: tensor[rows] for name, tensor in batch.items()},
            mask=mask[rows],
            aggregation=AGGREGATION[aggregation],
            denominator=denominator,
            **CLIP,
        ).loss
        for rows, mask in ((slice(0, 2), MASK), (slice(2, 4), muted), (slice(3, 4), MASK))
    ]
    assert float(sum(parts)) == pytest.approx(float(whole), abs=1e-14)


def test_what_stands_outside_the_mask_has_no_influence() -> None:
    clean, dirty = random_batch(), random_batch()
    for name in ("log_probs", "old_log_probs", "engine_log_probs"):
        dirty[name] = torch.where(MASK, dirty[name], torch.tensor(500.0 if name == "log_probs" else -500.0).double())
    dirty["log_probs"].requires_grad_()
    loss = policy_loss(**dirty, mask=MASK, aggregation=TOKEN_MEAN, **CLIP).loss
    loss.backward()
    assert loss.item() == policy_loss(**clean, mask=MASK, aggregation=TOKEN_MEAN, **CLIP).loss.item()
    assert dirty["log_probs"].grad is not None
    assert bool((dirty["log_probs"].grad[~MASK] == 0).all())


def test_a_surrogate_may_say_anything_outside_the_mask() -> None:
    def nowhere(tokens: Any) -> Any:
        gained = torch.where(tokens.mask, tokens.advantages * tokens.apart.exp(), torch.tensor(torch.nan).double())
        return gained, torch.zeros_like(tokens.mask)

    loss = policy_loss(**random_batch(), mask=MASK, aggregation=TOKEN_MEAN, **{**CLIP, "surrogate": nowhere}).loss
    assert bool(torch.isfinite(loss))


def test_aggregate_of_nothing_is_zero() -> None:
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    for aggregation in ("token", "sequence", "dr_grpo"):
        assert float(aggregate(torch.ones(2, 3), nothing, AGGREGATION[aggregation])) == 0.0


CHUNKS = [1, 11, 12, 40, 55, 10**6]
"""One position, one with a remainder, several positions, a whole sample, more than one sample, everything."""


@pytest.mark.parametrize("chunk_elements", CHUNKS)
def test_token_log_probs_are_log_softmax_at_temperature(chunk_elements: int) -> None:
    torch.manual_seed(0)
    logits, token_ids = 4.0 * torch.randn(3, 5, 11, dtype=torch.float64), torch.randint(11, (3, 5))
    log_probs, entropies = token_log_probs(logits, token_ids, 0.7, chunk_elements)
    distribution = torch.distributions.Categorical(logits=logits / 0.7)
    torch.testing.assert_close(log_probs, distribution.log_prob(token_ids), atol=1e-13, rtol=0)
    torch.testing.assert_close(entropies, distribution.entropy(), atol=1e-13, rtol=0)


@pytest.mark.parametrize("chunk_elements", CHUNKS)
def test_token_log_probs_gradient_is_that_of_finite_differences(chunk_elements: int) -> None:
    torch.manual_seed(0)
    logits, token_ids = torch.randn(3, 5, 11, dtype=torch.float64, requires_grad=True), torch.randint(11, (3, 5))
    assert torch.autograd.gradcheck(lambda x: token_log_probs(x, token_ids, 0.7, chunk_elements)[0], (logits,))

    def with_entropies(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return token_log_probs(x, token_ids, 0.7, chunk_elements, entropy_gradient=True)

    assert torch.autograd.gradcheck(with_entropies, (logits,))


class LargestFloat32(TorchDispatchMode):
    """Remembers the number of elements of the largest float32 tensor that any operation made."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32:
                self.largest = max(self.largest, tensor.numel())
        return result


def test_no_float32_copy_of_all_logits_ever_exists() -> None:
    logits = torch.randn(8, 16, 500).bfloat16().requires_grad_()
    token_ids = torch.randint(500, (8, 16))
    with LargestFloat32() as watch:
        for entropy in (False, True):
            log_probs, entropies = token_log_probs(logits, token_ids, chunk_elements=2000, entropy_gradient=entropy)
            (log_probs + entropies).sum().backward()
    assert log_probs.dtype == torch.float32
    assert logits.grad is not None
    assert 0 < watch.largest <= 2000


def test_dr_grpo_divides_by_a_constant_whatever_samples_came_out_empty() -> None:
    values, mask = torch.ones(3, 4), torch.tensor([[True] * 4, [True] * 2 + [False] * 2, [False] * 4])
    assert float(aggregate(values, mask, AGGREGATION["dr_grpo"])) == 6 / (3 * 4)
    assert float(aggregate(values, mask, AGGREGATION["sequence"])) == 1.0


@pytest.mark.parametrize("apart", [1e3, -1e3])
@pytest.mark.parametrize("ratio", ["token", "sequence", "cispo"])
def test_no_log_ratio_makes_a_loss_that_is_out_of_proportion(ratio: str, apart: float) -> None:
    log_probs, mask = torch.full((1, 3), -1.0, requires_grad=True), torch.ones(1, 3, dtype=torch.bool)
    for advantage in (1.0, -1.0):
        result = policy_loss(
            log_probs, log_probs.detach() - apart, log_probs.detach() + apart, torch.full((1, 3), advantage), mask,
            surrogate=Clip(0.2, 0.272, ratio=ratio, dual=3.0), importance=Truncation(2.0), aggregation=TOKEN_MEAN,  # type: ignore[arg-type]
        )  # fmt: skip
        assert abs(float(result.loss.detach())) <= 2.0 * 3.0
        unbounded = policy_loss(
            log_probs, log_probs.detach() - apart, log_probs.detach(), torch.full((1, 3), advantage), mask,
            surrogate=Clip(0.2, 0.272, ratio=ratio), importance=Truncation(2.0), aggregation=TOKEN_MEAN,  # type: ignore[arg-type]
        )  # fmt: skip
        assert abs(float(unbounded.loss.detach())) <= 2.0 * math.exp(20.0)
        assert bool(torch.autograd.grad(unbounded.loss, log_probs)[0].isfinite().all())
