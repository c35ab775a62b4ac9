"""Prompts that several rows begin with are read once, and nothing of values and gradients changes by it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from trainers.data import shared_prompts as shared
from trainers.data.batch import Sample, pad, split
from trainers.data.shared_prompts import shared_prompts
from trainers.data.tensors import RowTensors, row_tensors
from trainers.roles.forward import response_scores, response_top_tokens
from trainers.roles.shared_prompts import read_shared

pytestmark = pytest.mark.trainers

CPU = torch.device("cpu")
PROMPTS = ((5, 6, 7, 8, 9, 5), (6, 7), (0, 6, 7), (8, 8, 9, 4))
"""Of several lengths; two of them differ only in what padding is made of."""


@pytest.fixture(autouse=True)
def _few_tokens_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "LEAST_SAVED_TOKENS", 1)


def model(**settings: Any) -> Any:
    """A small Qwen3 that computes in float64 throughout: its own norms round to float32."""
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}
    found = Qwen3ForCausalLM(Qwen3Config(vocab_size=23, **sizes, **heads, **settings)).double().eval()
    for norm in found.modules():
        if isinstance(norm, Qwen3RMSNorm):
            norm.forward = functools.partial(torch.rms_norm, normalized_shape=norm.weight.shape, weight=norm.weight)
    return found


def samples(lengths: Sequence[int] = (3, 1, 4, 2)) -> list[Sample]:
    """Four responses to each prompt, siblings far from each other."""
    generator = torch.Generator().manual_seed(2)
    draws = [(prompt, length) for length in lengths for prompt in PROMPTS]
    return [Sample(prompt, tuple(torch.randint(23, (n,), generator=generator).tolist())) for prompt, n in draws]


class Positions:
    """Counts the tokens that a model is called with, padding included."""

    def __init__(self, policy: Any) -> None:
        self.seen: list[int] = []
        policy.model.register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, _module: Any, _arguments: Any, named: dict[str, Any]) -> None:
        self.seen.append(named["input_ids"].numel())


def learned(policy: Any, rows: RowTensors, *, chunked: bool = True) -> list[torch.Tensor]:
    """Log-probabilities, entropies and candidates of the response tokens, and the gradients of a loss of them."""
    policy.zero_grad()
    columns = rows.response_mask.shape[1]
    candidates = torch.stack([rows.token_ids[:, -columns:].flip(1), rows.token_ids[:, :columns]], dim=-1)
    scores = response_scores(policy, rows, 0.8, candidates, chunked=chunked)
    assert scores.candidates is not None
    mask = rows.response_mask
    loss = scores.log_probs[mask].exp().sum() + scores.candidates[mask].square().mean()
    loss.backward()
    gradients = [parameter.grad.clone() for parameter in policy.parameters()]
    return [scores.log_probs[mask], scores.entropies[mask], scores.candidates[mask], *gradients]


def assert_close(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=0)


@pytest.mark.parametrize("lengths", [(3, 1, 4, 2), (1, 1, 1, 1)])
def test_values_and_gradients_are_those_of_rows_that_read_their_own(lengths: Sequence[int]) -> None:
    policy, rows = model(), row_tensors(pad(samples(lengths)), CPU)
    assert rows.prompts is not None
    alone = replace(rows, prompts=None)
    positions = Positions(policy)
    shared, expected = learned(policy, rows), learned(policy, alone)
    assert_close(shared, expected)
    assert_close(shared, learned(policy, rows, chunked=False))
    longest = max(lengths)
    both = [4 * 6, 16 * (longest - 1)] if longest > 1 else [4 * 6]
    assert positions.seen == [*both, 16 * (5 + longest), 16 * (5 + longest)]


def test_a_teacher_finds_the_same() -> None:
    policy, rows = model(), row_tensors(pad(samples()), CPU)
    mask, positions = rows.response_mask, Positions(policy)
    found, expected = (response_top_tokens(policy, each, 0.8, 5) for each in (rows, replace(rows, prompts=None)))
    assert torch.equal(found[1][mask], expected[1][mask])
    assert_close([found[0][mask], found[2][mask]], [expected[0][mask], expected[2][mask]])
    assert len(positions.seen) == 3


def test_rows_are_grouped_by_their_whole_prompts() -> None:
    rows = pad(samples())
    found = shared_prompts(rows, CPU)
    assert found is not None
    assert found.of_row.tolist() == [0, 1, 2, 3] * 4
    assert found.rows.tolist() == [0, 1, 2, 3]


def test_what_is_not_worth_it_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shared_prompts(pad(samples()[:4]), CPU) is None, "no two rows have the same prompt"
    long = [Sample((1, 2), (3,) * 30) for _ in range(8)]
    assert shared_prompts(pad(long), CPU) is None, "prompts are a small part of it"
    assert shared_prompts(pad([]), CPU) is None
    assert shared_prompts(split(samples(), 1, 20)[0], CPU) is None, "packed rows"
    monkeypatch.setattr(shared, "LEAST_SAVED_TOKENS", 12 * 6 + 1)  # twelve of sixteen rows need not read six tokens
    assert shared_prompts(pad(samples()), CPU) is None, "one more call of the model"
    monkeypatch.setattr(shared, "LEAST_SAVED_TOKENS", 12 * 6)
    assert shared_prompts(pad(samples()), CPU) is not None


def test_models_that_remember_something_else_read_each_row() -> None:
    rows = row_tensors(pad(samples()), CPU)
    windowed = model(use_sliding_window=True, sliding_window=3, max_window_layers=1)
    positions = Positions(windowed)
    assert_close(learned(windowed, rows), learned(windowed, replace(rows, prompts=None)))
    assert positions.seen == [16 * 9] * 2


def test_ranks_that_gather_weights_make_as_many_passes_as_the_others() -> None:
    policy, rows = model(), row_tensors(pad(samples()), CPU)
    next(policy.parameters()).ds_id = 0
    assert read_shared(policy, rows, lambda hidden, *_: hidden) is None
    del next(policy.parameters()).ds_id
    assert read_shared(policy, rows, lambda hidden, *_: hidden) is not None
    policy.gradient_checkpointing_enable()
    assert read_shared(policy, rows, lambda hidden, *_: hidden) is None
