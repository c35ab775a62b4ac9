"""Tokens that an environment said: no loss, metric or advantage knows them; against plain computations."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from trainer_support import ROOT
from variant_support import AGGREGATION

from rltui.layout.load import load_layout
from trainers.advantages import generalised_advantages, token_rewards
from trainers.data.batch import Sample, pad, shard, split
from trainers.data.tensors import row_tensors
from trainers.metrics import sample_metrics
from trainers.objectives import objective
from trainers.roles.completions import Completion
from trainers.roles.forward import Scores
from trainers.roles.step_report import StepSums

pytestmark = pytest.mark.trainers

TINY = ROOT / "layouts" / "local" / "grpo-tools-tiny.yaml"
MASKS = ((True, True, False, False, True), (True, False, True), (True, True, True, True))
VOCABULARY_SIZE = 7


def masked_samples(seed: int) -> tuple[list[Sample], list[torch.Tensor]]:
    """Samples with tokens of an environment, whose columns hold nonsense there; and the logits [R, V] of each."""
    source = torch.Generator().manual_seed(seed)
    samples, logits = [], []
    for mask in MASKS:
        length = len(mask)
        scores = torch.randn(length, VOCABULARY_SIZE, generator=source, dtype=torch.float64)
        ids = torch.randint(VOCABULARY_SIZE, (length,), generator=source)
        chosen = scores.log_softmax(-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        keep = torch.tensor(mask)
        columns = {
            name: torch.where(keep, chosen + 0.3 * torch.randn(length, generator=source), 77.0 * keep.logical_not())
            for name in ("engine_log_probs", "old_log_probs", "reference_log_probs")
        }
        columns |= {
            "advantages": torch.full((length,), float(torch.randn(1, generator=source))),
            "staleness": keep * 0.0,
        }
        arrays = {name: values.numpy() for name, values in columns.items()}
        samples.append(Sample((1, 2), tuple(ids.tolist()), arrays, response_mask=() if all(mask) else mask))
        logits.append(scores)
    return samples, logits


def padded(logits: Sequence[torch.Tensor], width: int) -> torch.Tensor:
    found = torch.zeros(len(logits), width, VOCABULARY_SIZE, dtype=torch.float64)
    for row, values in enumerate(logits):
        found[row, : len(values)] = values
    return found.requires_grad_()


def plain_loss(
    samples: Sequence[Sample], logits: Sequence[torch.Tensor], aggregation: str, beta: float
) -> torch.Tensor:
    """GRPO's loss written out over the tokens that the policy chose, one after the other; nothing else exists here."""
    sums, counts = [], []
    for sample, scores in zip(samples, logits, strict=True):
        mask = sample.response_mask or (True,) * len(sample.response_ids)
        terms = []
        for place in [place for place, chosen in enumerate(mask) if chosen]:
            columns = {name: float(values[place]) for name, values in sample.columns.items()}  # type: ignore[index]
            log_prob = scores[place].log_softmax(-1)[sample.response_ids[place]]
            ratio, worth = (log_prob - columns["old_log_probs"]).exp(), columns["advantages"]
            gained = torch.minimum(ratio * worth, ratio.clamp(0.8, 1.272) * worth)
            weight = min(math.exp(columns["old_log_probs"] - columns["engine_log_probs"]), 2.0)
            apart = log_prob - columns["reference_log_probs"]
            terms.append(-weight * gained + beta * (torch.exp(-apart) - 1 + apart))
        sums.append(torch.stack(terms).sum())
        counts.append(len(terms))
    if aggregation == "token":
        return torch.stack(sums).sum() / sum(counts)
    if aggregation == "sequence":
        return torch.stack([total / count for total, count in zip(sums, counts, strict=True)]).mean()
    return torch.stack(sums).sum() / (len(samples) * 12)


@pytest.mark.parametrize("aggregation", ["token", "sequence", "dr_grpo"])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("pack", [0, 16])
def test_the_loss_is_that_of_the_tokens_which_the_policy_chose(aggregation: str, ranks: int, pack: int) -> None:
    words = [f"grpo.aggregation={aggregation}", "grpo.kl_coefficient=0.3", "roles.reference={}"]
    loss_of = objective(load_layout(TINY, words).layout)
    samples, logits = masked_samples(3)
    parts = shard(samples, [], ranks, AGGREGATION[aggregation], response_limit=12, pack_tokens=pack)
    scores, found = padded(logits, 5), torch.zeros((), dtype=torch.float64)
    for part in parts:
        [batch] = part.trained
        rows = row_tensors(batch.rows, torch.device("cpu"))
        numbers, width = batch.rows.numbers.clip(0), rows.response_mask.shape[1]
        ids = rows.token_ids[:, -width:].unsqueeze(-1)
        log_probs = scores[numbers, :width].log_softmax(-1).gather(-1, ids).squeeze(-1)
        found = found + loss_of(Scores(log_probs, torch.zeros_like(log_probs)), rows, batch.denominator).loss
    free = [values.clone().requires_grad_() for values in logits]
    expected = plain_loss(samples, free, aggregation, 0.3)
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    [gradient] = torch.autograd.grad(found, scores)
    for row, (mask, wanted) in enumerate(zip(MASKS, torch.autograd.grad(expected, free), strict=True)):
        assert torch.allclose(gradient[row, : len(mask)], wanted, rtol=1e-5, atol=1e-9)
        assert not gradient[row, : len(mask)][~torch.tensor(mask)].any()


def test_entropy_parity_and_lengths_know_only_the_tokens_of_the_policy() -> None:
    samples, logits = masked_samples(4)
    rows = row_tensors(pad(samples), torch.device("cpu"))
    scores = padded(logits, 5).detach().log_softmax(-1)
    log_probs = scores.gather(-1, rows.token_ids[:, -5:].unsqueeze(-1)).squeeze(-1)
    entropies = -(scores.exp() * scores).sum(-1)
    sums = StepSums()
    sums.measure(rows, Scores(log_probs, entropies))
    report = sums.report(1e-3, time.time(), 0.0)
    chosen = [(row, place) for row, mask in enumerate(MASKS) for place, is_chosen in enumerate(mask) if is_chosen]
    apart = [float(abs(log_probs[at] - rows.columns["engine_log_probs"][at])) for at in chosen]
    assert report.tokens == report.fresh_tokens == len(chosen) == 9
    assert report.parity_max_abs == pytest.approx(max(apart))
    assert report.parity_max_abs < 5 < 77
    assert report.entropy_sum == pytest.approx(sum(float(entropies[at]) for at in chosen))
    groups = [[Completion(0, (1,) * len(mask), (0.0,) * len(mask), "stop", 0, response_mask=mask)] for mask in MASKS]
    metrics = sample_metrics(groups, [[1.0]] * 3)
    assert (metrics["response_length"], metrics["response_length_max"]) == (3.0, 4.0)
    assert "turns" not in metrics


def test_columns_of_environment_tokens_travel_with_the_others() -> None:
    samples, _ = masked_samples(5)
    [left, right] = split(samples, 2)
    for part in (left, right):
        for row, number in enumerate(part.numbers.tolist()):
            if number < 0:
                assert not part.response_mask[row].any()
                continue
            values = samples[number].columns["engine_log_probs"]
            assert np.allclose(part.columns["engine_log_probs"][row, : len(MASKS[number])], values)
            assert part.response_mask[row, : len(MASKS[number])].tolist() == list(MASKS[number])
            assert part.attention_mask[row].sum() == 2 + len(MASKS[number])


def test_advantage_estimation_steps_over_what_the_environment_said() -> None:
    source = torch.Generator().manual_seed(0)
    mask = torch.tensor([[True, True, False, False, True, True], [True, False, True, False, False, False]])
    kl, values = (torch.randn(2, 6, generator=source, dtype=torch.float64) for _ in range(2))
    rewards = token_rewards(torch.tensor([1.0, -2.0], dtype=torch.float64), mask, kl, 0.1)
    advantages, returns = generalised_advantages(rewards, values, mask, 0.9, 0.8)
    for row in range(2):
        chosen = mask[row]
        whole = torch.ones(1, int(chosen.sum()), dtype=torch.bool)
        total = torch.tensor([[1.0, -2.0][row]], dtype=torch.float64)
        alone = token_rewards(total, whole, kl[row][chosen].unsqueeze(0), 0.1)
        expected = generalised_advantages(alone, values[row][chosen].unsqueeze(0), whole, 0.9, 0.8)
        assert torch.equal(advantages[row][chosen], expected[0][0])
        assert torch.equal(returns[row][chosen], expected[1][0])
        assert not advantages[row][~chosen].any()
        assert not returns[row][~chosen].any()
