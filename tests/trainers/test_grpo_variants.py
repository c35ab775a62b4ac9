"""Every variant of GRPO's loss against the objective written out in plain Python; float64, values and gradients."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from trainer_support import LAYOUT
from variant_support import AGGREGATION, TOKEN_MEAN, Clip

from rltui.layout.load import load_layout
from trainers.data.batch import Sample, pad, shard
from trainers.data.tensors import row_tensors
from trainers.losses import kl_estimate, policy_loss
from trainers.metrics import merge
from trainers.objectives import objective
from trainers.ratios import Truncation, importance_weight
from trainers.roles.forward import Scores
from trainers.roles.step_report import StepSums

pytestmark = pytest.mark.trainers

LENGTHS = [5, 2, 1, 4]
MASK = torch.arange(5) < torch.tensor(LENGTHS).unsqueeze(1)
COLUMNS = ("log_probs", "old_log_probs", "engine_log_probs", "advantages")

CLIPS = {
    "token": Clip(0.2, 0.28),
    "dual": Clip(0.2, 0.28, dual=1.4),
    "gspo": Clip(0.05, 0.08, ratio="sequence"),
    "gspo dual": Clip(0.05, 0.08, ratio="sequence", dual=1.1),
    "cispo": Clip(0.3, 0.28, ratio="cispo"),
    "cispo without lower bound": Clip(1.0, 0.28, ratio="cispo"),
}
WEIGHTS = {
    "off": Truncation(2.0, "off"),
    "cap": Truncation(1.3),
    "icepop": Truncation(1.5, "mask", 0.7),
    "product": Truncation(1.6, "sequence_product"),
    "mean": Truncation(1.1, "sequence_mean"),
    "whole": Truncation(1.4, "sequence_mask", 0.6),
}
AGGREGATIONS = ("token", "sequence", "dr_grpo")


def random_batch(seed: int) -> dict[str, torch.Tensor]:
    """Log-probs of four ragged samples, off-policy on both sides: policy moved on, and engine apart from trainer."""
    generator = torch.Generator().manual_seed(seed)

    def noise() -> torch.Tensor:
        return torch.randn(4, 5, generator=generator, dtype=torch.float64)

    old = -2.0 * torch.rand(4, 5, generator=generator, dtype=torch.float64) - 0.1
    new, engine = old + 0.4 * noise(), old + 0.3 * noise()
    return dict(zip(COLUMNS, (new, old, engine, noise()), strict=True))


def weights_of(old: list[float], engine: list[float], truncation: Truncation) -> list[float]:
    """The importance weights of one sample's tokens."""
    ratios = [math.exp(p - q) for p, q in zip(old, engine, strict=True)]
    if truncation.mode == "off":
        return [1.0] * len(ratios)
    if truncation.mode == "mask":
        return [ratio if truncation.low <= ratio <= truncation.cap else 0.0 for ratio in ratios]
    if truncation.mode == "cap":
        return [min(ratio, truncation.cap) for ratio in ratios]
    product = math.prod(ratios)
    if truncation.mode == "sequence_mask":
        return [product if truncation.low <= product <= truncation.cap else 0.0] * len(ratios)
    one = product if truncation.mode == "sequence_product" else product ** (1 / len(ratios))
    return [min(one, truncation.cap)] * len(ratios)


def gain_of(ratio: float, advantage: float, log_prob: float, clip: Clip) -> float:
    """What one token gains."""
    bounded = min(max(ratio, 1 - clip.low), 1 + clip.high)
    if clip.ratio == "cispo":
        return bounded * advantage * log_prob
    gain = min(ratio * advantage, bounded * advantage)
    return max(gain, clip.dual * advantage) if clip.dual and advantage < 0 else gain


def straight_loss(batch: dict[str, torch.Tensor], clip: Clip, truncation: Truncation, aggregation: str) -> float:
    """The whole objective, sample by sample and token by token."""
    sums = []
    for row, length in enumerate(LENGTHS):
        new, old, engine, advantages = (batch[name][row, :length].tolist() for name in COLUMNS)
        ratios = [math.exp(p - q) for p, q in zip(new, old, strict=True)]
        if clip.ratio == "sequence":
            ratios = [math.prod(ratios) ** (1 / length)] * length
        gains = map(gain_of, ratios, advantages, new, itertools.repeat(clip))
        sums.append(-sum(w * gain for w, gain in zip(weights_of(old, engine, truncation), gains, strict=True)))
    if aggregation == "sequence":
        return sum(total / length for total, length in zip(sums, LENGTHS, strict=True)) / len(LENGTHS)
    return sum(sums) / (sum(LENGTHS) if aggregation == "token" else len(LENGTHS) * MASK.shape[1])


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("clip", CLIPS)
def test_loss_is_the_objective_written_out(clip: str, weight: str, aggregation: str) -> None:
    for seed in range(10):
        batch = random_batch(seed)
        result = policy_loss(
            **batch, mask=MASK, surrogate=CLIPS[clip], importance=WEIGHTS[weight], aggregation=AGGREGATION[aggregation]
        )
        expected = straight_loss(batch, CLIPS[clip], WEIGHTS[weight], aggregation)
        assert float(result.loss) == pytest.approx(expected, abs=1e-13)


def test_the_variants_differ_from_each_other_on_this_data() -> None:
    """So that each of them would fail with another one's code."""
    batch = random_batch(0)
    found = [
        straight_loss(batch, clip, truncation, aggregation)
        for clip, truncation, aggregation in itertools.product(CLIPS.values(), WEIGHTS.values(), AGGREGATIONS)
    ]
    assert all(abs(a - b) > 1e-6 for a, b in itertools.combinations(found, 2))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("clip", ["token", "dual", "gspo", "gspo dual"])
def test_gradient_is_that_of_finite_differences(clip: str, aggregation: str) -> None:
    batch = random_batch(7)
    log_probs = batch.pop("log_probs").requires_grad_()

    def loss(values: torch.Tensor) -> torch.Tensor:
        return policy_loss(
            values,
            **batch,
            mask=MASK,
            surrogate=CLIPS[clip],
            importance=WEIGHTS["cap"],
            aggregation=AGGREGATION[aggregation],
        ).loss

    assert torch.autograd.gradcheck(loss, (log_probs,), eps=1e-7, atol=1e-7)


def test_cispo_gives_every_token_the_gradient_of_its_bounded_weight() -> None:
    """d loss / d log p = -w clip(r) A / tokens, also where r is out of bounds, where the other ratios have none."""
    batch = random_batch(3)
    log_probs = batch["log_probs"].requires_grad_()
    result = policy_loss(
        **batch, mask=MASK, surrogate=CLIPS["cispo"], importance=WEIGHTS["cap"], aggregation=TOKEN_MEAN
    )
    result.loss.backward()
    ratio = (log_probs - batch["old_log_probs"]).detach().exp()
    weight = (batch["old_log_probs"] - batch["engine_log_probs"]).exp().clamp(max=1.3)
    expected = -weight * ratio.clamp(0.7, 1.28) * batch["advantages"] * MASK / MASK.sum()
    assert log_probs.grad is not None
    torch.testing.assert_close(log_probs.grad, expected, atol=1e-14, rtol=0)
    outside = MASK & ((ratio < 0.7) | (ratio > 1.28))
    assert int(result.clipped_tokens) == int(outside.sum()) > 0


def test_gspo_on_policy_shares_a_samples_advantage_among_its_tokens() -> None:
    """Where the ratio is 1: d loss / d log p_t = -A / (samples x length), with the mean over samples."""
    batch = random_batch(5)
    log_probs = batch["old_log_probs"].clone().requires_grad_()
    worth = batch["advantages"][:, :1].expand(4, 5)
    batch |= {"log_probs": log_probs, "old_log_probs": log_probs.detach(), "advantages": worth}
    policy_loss(
        **batch, mask=MASK, surrogate=CLIPS["gspo"], importance=WEIGHTS["off"], aggregation=AGGREGATION["sequence"]
    ).loss.backward()
    expected = -worth * MASK / (4 * torch.tensor(LENGTHS, dtype=torch.float64).unsqueeze(1))
    assert log_probs.grad is not None
    torch.testing.assert_close(log_probs.grad, expected, atol=1e-14, rtol=0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "passes", "loss"),
    [(2.9, -1.0, True, 2.9), (3.1, -1.0, False, 3.0), (0.7, -1.0, False, 0.8), (9.0, 1.0, False, -1.28)],
)
def test_dual_clip_bounds_what_a_bad_sample_can_cost(ratio: float, advantage: float, passes: bool, loss: float) -> None:
    log_probs = torch.tensor([[math.log(ratio)]], dtype=torch.float64, requires_grad=True)
    zero, one = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)
    result = policy_loss(
        log_probs, zero, zero, torch.full_like(zero, advantage), one,
        surrogate=Clip(0.2, 0.28, dual=3.0), importance=Truncation(2.0), aggregation=TOKEN_MEAN,
    )  # fmt: skip
    result.loss.backward()
    assert float(result.loss.detach()) == pytest.approx(loss)
    assert log_probs.grad is not None
    assert bool(log_probs.grad.abs().sum() > 0) is passes
    assert int(result.clipped_tokens) == (not passes)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("clip", CLIPS)
def test_what_stands_outside_the_mask_has_no_influence(clip: str, weight: str) -> None:
    losses = []
    for junk in (0.0, 400.0):
        batch = {name: torch.where(MASK, values, junk) for name, values in random_batch(2).items()}
        batch["log_probs"].requires_grad_()
        result = policy_loss(
            **batch, mask=MASK, surrogate=CLIPS[clip], importance=WEIGHTS[weight], aggregation=AGGREGATION["sequence"]
        )
        result.loss.backward()
        losses.append((float(result.loss.detach()), int(result.clipped_tokens), int(result.limited_tokens)))  # type: ignore[arg-type]
        assert batch["log_probs"].grad is not None
        assert bool((batch["log_probs"].grad[~MASK] == 0).all())
    assert losses[0] == losses[1]


def test_a_samples_weight_may_overflow_and_is_capped_all_the_same() -> None:
    """The product over a long sample leaves even float64."""
    trainer, engine = torch.zeros(1, 2000).double(), torch.full((1, 2000), -2.0).double()
    mask = torch.ones(1, 2000, dtype=torch.bool)
    weight, limited = importance_weight(trainer, engine, mask, WEIGHTS["product"])
    assert float(weight.max()) == float(weight.min()) == 1.6
    assert bool(limited.all())


def test_limited_tokens_are_those_whose_weight_was_changed() -> None:
    for seed, (name, truncation) in itertools.product(range(5), WEIGHTS.items()):
        batch = random_batch(seed)
        expected = 0
        for row, length in enumerate(LENGTHS):
            old, engine = (batch[key][row, :length].tolist() for key in ("old_log_probs", "engine_log_probs"))
            free = weights_of(old, engine, Truncation(math.inf, truncation.mode, 0.0))
            bounded = weights_of(old, engine, truncation)
            expected += sum(a != b for a, b in zip(free, bounded, strict=True))
        _, limited = importance_weight(batch["old_log_probs"], batch["engine_log_probs"], MASK, truncation)
        assert int(limited.sum()) == expected, name


def samples(seed: int, count: int = 7) -> list[Sample]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 6, (count,), generator=generator).tolist()
    return [
        Sample((1,), (2,) * length, {name: torch.randn(length, generator=generator).numpy() for name in COLUMNS})
        for length in lengths
    ]


def loss_and_slope(rows: Any, clip: Clip, aggregation: Any, denominator: float) -> tuple[float, float]:
    """The loss of rows under a policy with one weight, and its derivative by that weight."""
    tensors = row_tensors(rows, torch.device("cpu"))
    columns = {name: tensors.columns[name].double() for name in COLUMNS}
    weight = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    columns["log_probs"] = weight * columns["log_probs"]
    loss = policy_loss(
        **columns, mask=tensors.response_mask, surrogate=clip, importance=WEIGHTS["cap"],
        aggregation=AGGREGATION[aggregation], denominator=denominator,
    ).loss  # fmt: skip
    loss.backward()
    assert weight.grad is not None
    return float(loss.detach()), float(weight.grad)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize(("ranks", "micro_batch"), [(1, 1), (2, 2), (3, 1), (3, 0), (5, 2)])
@pytest.mark.parametrize("clip", ["token", "gspo", "cispo"])
def test_micro_batches_of_ranks_add_up_to_the_whole(ranks: int, micro_batch: int, clip: str, aggregation: Any) -> None:
    """7 samples: no number of ranks divides them, so that some rows only fill up."""
    batch, limit = samples(1), 9
    constant = {"token": sum(len(s.response_ids) for s in batch), "sequence": 7, "dr_grpo": 7 * limit}[aggregation]
    together = loss_and_slope(pad(batch), CLIPS[clip], aggregation, constant)
    parts = [
        loss_and_slope(rows, CLIPS[clip], aggregation, mini.denominator)
        for part in shard(batch, [], ranks, AGGREGATION[aggregation], response_limit=limit)
        for mini in part.trained
        for rows in mini.rows.micro_batches(micro_batch)
    ]
    assert [sum(values) for values in zip(*parts, strict=True)] == pytest.approx(list(together), abs=1e-12)


def test_dr_grpo_without_its_constant_is_refused() -> None:
    with pytest.raises(ValueError, match="limit of response tokens"):
        shard(samples(1), [], 2, AGGREGATION["dr_grpo"])


SETTINGS: list[tuple[list[str], Clip, Truncation, str]] = [
    ([], Clip(0.2, 0.272), Truncation(2.0), "token"),
    (["ratio=sequence", "clip_low=3e-4", "clip_high=4e-4", "aggregation=sequence"],
     Clip(3e-4, 4e-4, "sequence"), Truncation(2.0), "sequence"),
    (["ratio=cispo", "importance=off", "aggregation=dr_grpo"], Clip(0.2, 0.272, "cispo"), WEIGHTS["off"], "dr_grpo"),
    (["dual_clip=3", "importance=mask", "importance_low=0.8", "importance_cap=1.2"],
     Clip(0.2, 0.272, dual=3.0), Truncation(1.2, "mask", 0.8), "token"),
]  # fmt: skip


@pytest.mark.parametrize("kl", ["none", "loss", "reward", ""])
@pytest.mark.parametrize(("words", "clip", "truncation", "aggregation"), SETTINGS, ids=lambda value: str(value)[:30])
def test_what_the_layout_says_is_what_is_minimised(
    words: list[str], clip: Clip, truncation: Truncation, aggregation: Any, kl: str
) -> None:
    """A coefficient alone puts the KL into the loss; in the reward or nowhere, the loss has no part of it."""
    words = [*words, "kl_coefficient=0.1", *([f"kl={kl}"] if kl else [])]
    layout = load_layout(LAYOUT, [f"grpo.{word}" for word in words]).layout
    batch = random_batch(4)
    log_probs = batch["log_probs"]
    rows = row_tensors(pad([Sample((1,), (2,) * length) for length in LENGTHS]), torch.device("cpu"))
    reference = log_probs - 0.3 * torch.randn(4, 5, generator=torch.Generator().manual_seed(9)).double()
    columns = {name: batch[name] for name in COLUMNS[1:]} | {"reference_log_probs": reference}
    rows = type(rows)(rows.token_ids, rows.attention_mask, rows.response_mask, columns)
    found = objective(layout)(Scores(log_probs, log_probs), rows, 12.0)
    expected = policy_loss(
        **batch,
        mask=MASK,
        surrogate=clip,
        importance=truncation,
        aggregation=AGGREGATION[aggregation],
        denominator=12.0,
    )
    apart = kl_estimate(log_probs, reference, "k3") * MASK
    if aggregation == "sequence":
        apart = apart / torch.tensor(LENGTHS).unsqueeze(1)
    penalty = 0.1 * float(apart.sum()) / 12 if kl in ("loss", "") else 0.0
    assert float(found.loss) == pytest.approx(float(expected.loss) + penalty, abs=1e-13)


@pytest.mark.parametrize(("quantile", "kept"), [(1.0, 12), (0.5, 6), (0.2, 3), (0.0, 1)])
def test_rewards_move_the_tokens_of_highest_entropy(quantile: float, kept: int) -> None:
    """The others still count in the mean; as many are kept as TRL keeps."""
    layout = load_layout(LAYOUT, [f"grpo.top_entropy_quantile={quantile}"]).layout
    batch = random_batch(2)
    entropies = torch.rand(4, 5, generator=torch.Generator().manual_seed(7), dtype=torch.float64) + ~MASK * 9.0
    rows = row_tensors(pad([Sample((1,), (2,) * length) for length in LENGTHS]), torch.device("cpu"))
    rows = type(rows)(
        rows.token_ids, rows.attention_mask, rows.response_mask, {name: batch[name] for name in COLUMNS[1:]}
    )
    found = objective(layout)(Scores(batch["log_probs"], entropies), rows, 12.0)
    highest = sorted(((float(entropies[at]), at) for at in map(tuple, MASK.nonzero().tolist())), reverse=True)
    worth = torch.zeros_like(batch["advantages"])
    for _, at in highest[:kept]:
        worth[at] = batch["advantages"][at]
    expected = policy_loss(
        **{**batch, "advantages": worth},
        mask=MASK,
        surrogate=Clip(0.2, 0.272),
        importance=Truncation(2.0),
        aggregation=TOKEN_MEAN,
        denominator=12.0,
    )
    assert float(found.loss) == pytest.approx(float(expected.loss), abs=1e-13)


def test_mismatch_is_told_as_mean_largest_and_kl_of_the_engine_from_the_trainer() -> None:
    batch = random_batch(6)
    rows = row_tensors(pad([Sample((1,), (2,) * length) for length in LENGTHS]), torch.device("cpu"))
    rows = type(rows)(rows.token_ids, rows.attention_mask, rows.response_mask, batch)
    sums = StepSums()
    sums.measure(rows, Scores(batch["log_probs"], torch.zeros(4, 5)))
    sums.train(
        rows,
        policy_loss(**batch, mask=MASK, surrogate=CLIPS["token"], importance=WEIGHTS["icepop"], aggregation=TOKEN_MEAN),
    )
    metrics = merge([sums.report(0.0, 0.0, 0.0)])
    apart = (batch["log_probs"] - batch["engine_log_probs"])[MASK].tolist()
    assert metrics["parity_mean_abs"] == pytest.approx(sum(map(abs, apart)) / 12)
    assert metrics["parity_max_abs"] == pytest.approx(max(map(abs, apart)))
    assert metrics["mismatch_kl"] == pytest.approx(sum(math.exp(d) - 1 - d for d in apart) / 12)
    limited = (batch["old_log_probs"] - batch["engine_log_probs"])[MASK].exp()
    assert metrics["importance_limited_fraction"] == float(((limited < 0.7) | (limited > 1.5)).sum()) / 12


def test_the_mismatch_estimate_is_the_kl_of_the_sampling_engine() -> None:
    """Over all tokens, weighted by the engine that draws them, k3 sums up to KL(engine || trainer)."""
    generator = torch.Generator().manual_seed(0)
    engine, trainer = torch.randn(2, 9, generator=generator, dtype=torch.float64).log_softmax(-1)
    mean = (engine.exp() * kl_estimate(engine, trainer, "k3")).sum()
    torch.testing.assert_close(mean, (engine.exp() * (engine - trainer)).sum(), atol=1e-14, rtol=0)
