"""Variants of GRPO: each against its published formula, and that each learns."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
import torch
from variant_support import AGGREGATION, LENGTHS, REWARDS, chance, groups, grpo, off_policy

from rltui.layout.variants import VARIANTS as SETTINGS
from trainers.advantages import STD_EPSILON, VARIANCE_EPSILON
from trainers.groups import Drawn
from trainers.grpo import LENGTH, groups_of
from trainers.ratios import Tokens
from trainers.rewards.parts import SumOfParts
from trainers.roles.completions import Completion
from trainers.variants import VARIANTS, variant

pytestmark = pytest.mark.trainers

FORM = [[0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0]]


def whitened(rows: list[list[float]]) -> list[list[float]]:
    """As verl's ``masked_whiten``: over all tokens of the batch, each of which has its sample's number."""
    every = [value for row, lengths in zip(rows, LENGTHS, strict=True) for value, n in zip(row, lengths, strict=True)
             for _ in range(n)]  # fmt: skip
    mean, scale = statistics.fmean(every), math.sqrt(statistics.variance(every) + VARIANCE_EPSILON)
    return [[(value - mean) / scale for value in row] for row in rows]


def less_mean(row: list[float]) -> list[float]:
    return [value - statistics.fmean(row) for value in row]


def by_deviation(row: list[float]) -> list[float]:
    return [value / (statistics.stdev(row) + STD_EPSILON) for value in less_mean(row)]


def decoupled() -> list[list[float]]:
    """GDPO's three steps with weights .9 and .1."""
    added = [
        0.9 * a + 0.1 * b
        for rewards, form in zip(REWARDS, FORM, strict=True)
        for a, b in zip(by_deviation(rewards), by_deviation(form), strict=True)
    ]
    flat = by_deviation(added)
    return [flat[first : first + 4] for first in range(0, 12, 4)]


ADVANTAGES = {
    "standard": [by_deviation(row) for row in REWARDS],
    "centered": [less_mean(row) for row in REWARDS],
    "rloo": [[row[i] - statistics.fmean(row[:i] + row[i + 1 :]) for i in range(4)] for row in REWARDS],
    "opo": [
        [value - sum(r * n for r, n in zip(row, lengths, strict=True)) / sum(lengths) for value in row]
        for row, lengths in zip(REWARDS, LENGTHS, strict=True)
    ],
    "gdpo": decoupled(),
    "reinforce_plus_plus": whitened(REWARDS),
    "reinforce_plus_plus_baseline": whitened([less_mean(row) for row in REWARDS]),
}


@pytest.mark.parametrize("name", VARIANTS["advantage"])
def test_advantages_are_those_of_the_paper(name: str) -> None:
    parts = {"answer": (torch.tensor(REWARDS).double(), 0.9), "form": (torch.tensor(FORM).double(), 0.1)}
    found = variant(grpo(f"advantage={name}"), "advantage")(groups(parts=parts))
    assert found.tolist() == [pytest.approx(row, abs=1e-12) for row in ADVANTAGES[name]]


def test_what_groups_are_judged_by_is_taken_from_the_samples_of_the_step() -> None:
    """Lengths are of what the policy said, a penalty is a part like others, and a failed answer earns 0 in all."""
    masked = Completion(0, (7, 8, 9), (-1.0,) * 3, "stop", 0, response_mask=(True, False, True))
    long = Completion(0, (7,) * 8, (-1.0,) * 8, "length", 0)
    half, failed = SumOfParts({"right": (1.0, 0.9), "form": (0.5, 0.1)}), 0.0
    drawn = Drawn([], [[masked, long]] * 2, [], [[half, failed], [half, half]])
    found = groups_of(drawn, [1, 0], 8, 4)
    assert found.lengths.tolist() == [[2, 8], [2, 8]]
    assert found.rewards.flatten().tolist() == pytest.approx([0.95, -0.05, 0.95, -1.0])
    assert {name: (values.tolist(), weight) for name, (values, weight) in found.parts.items()} == {
        "right": ([[1.0, 1.0], [1.0, 0.0]], 0.9),
        "form": ([[0.5, 0.5], [0.5, 0.0]], 0.1),
        LENGTH: ([[0.0, -1.0], [0.0, -1.0]], 1.0),
    }
    plain = replace(drawn, rewards=[[1.0, 0.0], [0.0, 1.0]])
    assert groups_of(plain, [0, 1], 8, 4).parts == {}


def test_a_filter_takes_groups_that_differ_or_are_neither_too_hard_nor_too_easy() -> None:
    rewards = torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0], [0.1, 0.2]])
    assert variant(grpo(), "filter")(rewards).tolist() == [False, True, False, True]
    narrow = variant(grpo("filter=mean_within", "filter_high=0.4", "filter_low=0.1"), "filter")
    assert narrow(rewards).tolist() == [False, False, False, True]


def test_the_layout_and_the_trainers_know_the_same_names_and_settings() -> None:
    assert {kind: list(names) for kind, names in SETTINGS.items()} == {
        kind: list(names) for kind, names in VARIANTS.items()
    }
    for kind, names in SETTINGS.items():
        for name in names:
            assert callable(variant(grpo(f"{kind}={name}"), kind))


def plain(tokens: Tokens) -> list[list[tuple[float, float, float]]]:
    """Of each token of each sample: log-ratio, log-probability and advantage."""
    columns = (tokens.log_probs - tokens.old_log_probs, tokens.log_probs, tokens.advantages)
    rows = zip(*(values.tolist() for values in columns), tokens.mask.sum(dim=1).tolist(), strict=True)
    return [list(zip(d[:n], p[:n], a[:n], strict=True)) for d, p, a, n in rows]


def sapo(sample: list[tuple[float, float, float]]) -> list[float]:
    found = []
    for apart, _, worth in sample:
        t = 1.0 if worth > 0 else 1.05
        found.append(4 / t / (1 + math.exp(-t * (math.exp(apart) - 1))) * worth)
    return found


def gmpo(sample: list[tuple[float, float, float]]) -> list[float]:
    kept = [min(apart, 0.4) if worth > 0 else max(apart, -0.3) for apart, _, worth in sample]
    return [worth * math.exp(sum(kept) / len(kept)) for _, _, worth in sample]


def cispo(sample: list[tuple[float, float, float]]) -> list[float]:
    return [min(max(math.exp(apart), 0.7), 1.4) * worth * log_prob for apart, log_prob, worth in sample]


def clipped(sample: list[tuple[float, float, float]]) -> list[float]:
    ratios = [math.exp(apart) for apart, _, _ in sample]
    return [min(r * worth, min(max(r, 0.7), 1.4) * worth) for r, (_, _, worth) in zip(ratios, sample, strict=True)]


def sequence(sample: list[tuple[float, float, float]]) -> list[float]:
    mean = statistics.fmean(apart for apart, _, _ in sample)
    return clipped([(mean, log_prob, worth) for _, log_prob, worth in sample])


BY_SAMPLE = {"sapo": sapo, "gmpo": gmpo, "cispo": cispo, "token": clipped, "sequence": sequence}
BOUNDS = ("clip_low=0.3", "clip_high=0.4")


@pytest.mark.parametrize("name", BY_SAMPLE)
def test_surrogates_are_those_of_the_paper(name: str) -> None:
    surrogate = variant(grpo(f"ratio={name}", *BOUNDS), "ratio")
    for seed in range(10):
        tokens = off_policy(seed)
        gained, _ = surrogate(tokens)
        expected = [gain for sample in plain(tokens) for gain in BY_SAMPLE[name](sample)]
        assert gained[tokens.mask].tolist() == pytest.approx(expected, abs=1e-12)


def covariances(tokens: Tokens) -> list[float]:
    """Of all tokens, in order: advantage and log-probability, each less its mean, multiplied."""
    every = [token for sample in plain(tokens) for token in sample]
    log_prob, worth = (statistics.fmean(token[i] for token in every) for i in (1, 2))
    return [(token[2] - worth) * (token[1] - log_prob) for token in every]


@pytest.mark.parametrize("fraction", [0.0, 0.25, 1.0])
def test_kl_cov_penalises_the_tokens_of_largest_covariance(fraction: float) -> None:
    surrogate = variant(grpo("ratio=kl_cov", f"kl_cov_fraction={fraction}", "kl_cov_coefficient=0.7"), "ratio")
    for seed in range(10):
        tokens = off_policy(seed)
        gained, changed = surrogate(tokens)
        order = sorted(range(12), key=covariances(tokens).__getitem__, reverse=True)
        chosen = set(order[: max(1, int(12 * fraction))])
        expected = [
            math.exp(apart) * worth - 0.7 * abs(apart) * (number in chosen)
            for number, (apart, _, worth) in enumerate(token for sample in plain(tokens) for token in sample)
        ]
        assert gained[tokens.mask].tolist() == pytest.approx(expected, abs=1e-12)
        assert set(changed[tokens.mask].nonzero().flatten().tolist()) == chosen
        assert not changed[~tokens.mask].any()


@pytest.mark.parametrize("fraction", [0.0, 0.2, 1.0])
def test_clip_cov_leaves_out_a_few_of_the_tokens_between_the_bounds(fraction: float) -> None:
    words = ("ratio=clip_cov", *BOUNDS, f"clip_cov_fraction={fraction}", "clip_cov_low=0.1", "clip_cov_high=1.5")
    surrogate, drawn = variant(grpo(*words), "ratio"), set()
    for seed in range(10):
        tokens = off_policy(seed)
        free = [gain for sample in plain(tokens) for gain in clipped(sample)]
        bounded = [
            gain != math.exp(apart) * worth
            for gain, (apart, _, worth) in zip(free, (t for s in plain(tokens) for t in s), strict=True)
        ]
        may = {i for i, c in enumerate(covariances(tokens)) if 0.1 < c < 1.5 and not bounded[i]}
        gained, changed = surrogate(tokens)
        out = {i for i, is_changed in enumerate(changed[tokens.mask].tolist()) if is_changed and not bounded[i]}
        assert out <= may
        assert len(out) == min(len(may), max(1, int(12 * fraction)))
        expected = [0.0 if i in out else gain for i, gain in enumerate(free)]
        assert gained[tokens.mask].tolist() == pytest.approx(expected, abs=1e-12)
        drawn |= out
    assert len(drawn) > 3


def test_clip_cov_draws_the_same_tokens_again_where_the_random_state_is_the_same() -> None:
    surrogate = variant(grpo("ratio=clip_cov", "clip_cov_low=-9", "clip_cov_high=9"), "ratio")
    torch.manual_seed(5)
    state, first = torch.get_rng_state(), surrogate(off_policy(0))[1]
    torch.set_rng_state(state)
    assert surrogate(off_policy(0))[1].tolist() == first.tolist()


@pytest.mark.parametrize("name", ["sapo", "gmpo", "kl_cov"])
def test_gradient_is_that_of_finite_differences(name: str) -> None:
    surrogate = variant(grpo(f"ratio={name}", *BOUNDS, "kl_cov_fraction=0.3"), "ratio")
    tokens = off_policy(3)

    def total(log_probs: torch.Tensor) -> torch.Tensor:
        moved = Tokens(log_probs, *(getattr(tokens, field) for field in (
            "old_log_probs", "engine_log_probs", "advantages", "mask")))  # fmt: skip
        gains: torch.Tensor = surrogate(moved)[0]
        return gains[tokens.mask].sum()

    assert torch.autograd.gradcheck(total, (tokens.log_probs,), eps=1e-7, atol=1e-6)


def test_the_sum_of_samples_is_divided_by_their_number() -> None:
    weights, counts = AGGREGATION["sequence_sum"](torch.tensor([3.0, 1.0, 0.0]), 4)
    assert (weights.tolist(), counts.tolist()) == ([1.0] * 3, [1.0] * 3)


@pytest.mark.parametrize(
    "word",
    [
        *(f"advantage={name}" for name in VARIANTS["advantage"]),
        *(f"ratio={name}" for name in VARIANTS["ratio"]),
        *(f"aggregation={name}" for name in VARIANTS["aggregation"]),
    ],
)
def test_each_variant_learns_and_with_a_turned_sign_unlearns(word: str) -> None:
    wide = ("clip_low=0.2", "clip_high=0.28") if word != "ratio=sequence" else ("clip_low=0.02", "clip_high=0.02")
    assert chance((word, *wide)) > 0.85
    assert chance((word, *wide), sign=-1.0) < 0.03
