"""Variants of GRPO: each against its published formula, that each learns, and functions of a user's own."""

from __future__ import annotations

import math
import statistics
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from trainer_support import LAYOUT
from variant_support import AGGREGATION

from rltui.layout.load import load_layout
from rltui.layout.variants import VARIANTS as SETTINGS
from trainers.advantages import STD_EPSILON, VARIANCE_EPSILON, Groups
from trainers.losses import policy_loss, token_log_probs
from trainers.ratios import Tokens, Truncation
from trainers.variants import VARIANTS, VariantError, variant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rltui.layout.algorithms import Grpo

pytestmark = pytest.mark.trainers

REWARDS = [[1.0, 0.0, 0.0, 0.5], [0.25, 4.0, -1.0, 2.0], [1.0, 1.0, 1.0, 1.0]]
LENGTHS = [[5, 2, 1, 4], [3, 3, 7, 1], [2, 4, 6, 1]]
FORM = [[0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0]]


def grpo(*words: str) -> Grpo:
    """The section of a layout with these settings."""
    return load_layout(LAYOUT, [f"grpo.{word}" for word in words]).layout.grpo


def groups(**more: Any) -> Groups:
    return Groups(torch.tensor(REWARDS).double(), torch.tensor(LENGTHS), **more)


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


def off_policy(seed: int) -> Tokens:
    """Tokens of four ragged samples, each with one advantage, and a policy that has moved on."""
    source = torch.Generator().manual_seed(seed)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=source, dtype=torch.float64)

    old = -2.0 * torch.rand(4, 5, generator=source, dtype=torch.float64) - 0.1
    mask = torch.arange(5) < torch.tensor([5, 2, 1, 4]).unsqueeze(1)
    return Tokens((old + 0.5 * noise(4, 5)).requires_grad_(), old, old, noise(4, 1).expand(4, 5), mask)


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


def chance(words: tuple[str, ...], sign: float = 1.0, updates: int = 2) -> float:
    """How likely a table of logits is to say what each of four contexts wants, after 60 steps from 1 in 8."""
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


OWN = """
import torch

def scaled(groups, *, scale=1.0):
    return scale * (groups.rewards - groups.rewards.mean())

def reinforce(tokens):
    return tokens.advantages * tokens.log_probs

def bounded(tokens, *, most):
    ratio = tokens.apart.exp()
    return ratio.clamp(max=most) * tokens.advantages, ratio > most

def by_root(lengths, limit):
    return lengths.clamp(min=1).rsqrt(), torch.ones_like(lengths)

def absolute(log_probs, reference_log_probs):
    return (log_probs - reference_log_probs).abs()

def above(rewards, *, least):
    return rewards.mean(dim=1) > least

def flat(groups):
    return groups.rewards.mean(dim=1)

def nothing(*given):
    return None

def not_a_number(groups):
    return groups.rewards / 0

def loses_gradient(tokens):
    return tokens.advantages.clone()

def breaks(tokens):
    return tokens.log_porbs
"""


@pytest.fixture(scope="module", autouse=True)
def own_module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("own")
    (folder / "my_variants.py").write_text(OWN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


def test_a_function_of_ones_own_is_called_as_bundled_ones_are_with_its_settings() -> None:
    own: Callable[..., Any] = lambda kind, name, *words: variant(grpo(f"{kind}=my_variants:{name}", *words), kind)  # noqa: E731
    assert own("advantage", "scaled", "advantage_settings={scale: 2}")(groups()).sum().abs() < 1e-9
    tokens = off_policy(1)
    gained, changed = own("ratio", "reinforce")(tokens)
    assert torch.equal(gained, tokens.advantages * tokens.log_probs)
    assert not changed.any()
    gained, changed = own("ratio", "bounded", "ratio_settings={most: 1.1}")(tokens)
    assert torch.equal(changed, (tokens.apart.exp() > 1.1) & tokens.mask)
    lengths = torch.tensor([4.0, 1.0])
    assert own("aggregation", "by_root")(lengths, 9)[0].tolist() == [0.5, 1.0]
    assert own("kl_estimator", "absolute")(lengths, -lengths).tolist() == [8.0, 2.0]
    assert own("filter", "above", "filter_settings.least=0.4")(torch.tensor(REWARDS)).tolist() == [False, True, True]


def test_a_policy_learns_by_functions_of_ones_own() -> None:
    words = ("ratio=my_variants:bounded", "ratio_settings={most: 1.3}", "aggregation=my_variants:by_root")
    assert chance(("advantage=my_variants:scaled", *words)) > 0.85


@pytest.mark.parametrize(
    ("kind", "name", "given", "says"),
    [
        ("advantage", "flat", groups, "returned a tensor of shape [3], and [3, 4] is due"),
        ("advantage", "not_a_number", groups, "returned numbers that are not finite"),
        ("advantage", "nothing", groups, "returned NoneType, and a tensor of shape [3, 4] is due"),
        ("ratio", "loses_gradient", partial(off_policy, 1), "must be computed from tokens.log_probs"),
        ("ratio", "breaks", partial(off_policy, 1), "raised AttributeError: 'Tokens' object has no attribute"),
    ],
)
def test_what_cannot_be_right_ends_the_run_with_a_sentence_that_names_it(
    kind: str, name: str, given: Callable[[], Any], says: str
) -> None:
    with pytest.raises(VariantError) as caught:
        variant(grpo(f"{kind}=my_variants:{name}"), kind)(given())
    assert str(caught.value).startswith(f"grpo.{kind} my_variants:{name} ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ratio=no_such:thing",), "grpo.ratio no_such:thing cannot be called: ModuleNotFoundError"),
        (("ratio=my_variants:thing",), "AttributeError"),
        (("ratio=my_variants:bounded",), "missing a required argument: 'most'"),
        (("ratio=my_variants:bounded", "ratio_settings={most: 2, least: 1}"), "unexpected keyword argument 'least'"),
    ],
)
def test_what_cannot_be_called_is_told_before_anything_is_sampled(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(VariantError, match=says):
        variant(grpo(*words), "ratio")
