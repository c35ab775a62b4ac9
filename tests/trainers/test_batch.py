"""Padding samples into rows, splitting rows over ranks, and the log-probabilities a learner gets from such rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from trainer_support import LAYOUT
from transformers import Qwen3Config, Qwen3ForCausalLM

from rltui.layout.load import load_layout
from trainers.data.batch import Sample, pack, shard, split
from trainers.roles.learner import Learner

pytestmark = pytest.mark.trainers

SAMPLES = [
    Sample((5, 6, 7), (8, 9), (-0.1, -0.2), 1.0),
    Sample((5,), (8, 9, 10, 2), (-0.3, -0.4, -0.5, -0.6), -1.0),
    Sample((4, 4), (2,), (-0.7,), 0.5),
]


def test_prompts_end_and_responses_begin_in_the_same_column() -> None:
    rows = pack(SAMPLES)
    assert rows.token_ids.tolist() == [[5, 6, 7, 8, 9, 0, 0], [0, 0, 5, 8, 9, 10, 2], [0, 4, 4, 2, 0, 0, 0]]
    assert rows.attention_mask.astype(int).tolist() == [
        [1, 1, 1, 1, 1, 0, 0],
        [0, 0, 1, 1, 1, 1, 1],
        [0, 1, 1, 1, 0, 0, 0],
    ]
    assert rows.response_mask.astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]
    assert rows.engine_log_probs[0].tolist() == pytest.approx([-0.1, -0.2, 0.0, 0.0])
    assert rows.advantages.tolist() == [1.0, -1.0, 0.5]


@pytest.mark.parametrize("num_parts", [1, 2, 3, 5])
def test_parts_are_equal_and_what_fills_up_weighs_nothing(num_parts: int) -> None:
    rows = pack(SAMPLES)
    parts = split(rows, num_parts)
    assert len({len(part) for part in parts}) == 1
    together = np.concatenate([part.token_ids for part in parts])
    assert together[:3].tolist() == rows.token_ids.tolist()
    assert sum(int(part.response_mask.sum()) for part in parts) == 7
    assert float(np.abs(np.concatenate([part.advantages for part in parts])[3:]).sum()) == 0.0


def test_no_samples_split_into_empty_parts() -> None:
    assert [len(part) for part in split(pack([]), 2)] == [0, 0]


def test_every_shard_has_the_denominator_of_the_whole_batch() -> None:
    assert {part.denominator for part in shard(SAMPLES, [], 2, "token")} == {7.0}
    assert {part.denominator for part in shard(SAMPLES, SAMPLES, 2, "sequence")} == {3.0}
    assert {part.denominator for part in shard([], SAMPLES, 2, "token")} == {1.0}


@pytest.mark.parametrize(("size", "expected"), [(0, [3]), (1, [1, 1, 1]), (2, [2, 1]), (9, [3])])
def test_micro_batches_cover_all_rows(size: int, expected: list[int]) -> None:
    assert [len(part) for part in pack(SAMPLES).micro_batches(size)] == expected


def tiny_model() -> Any:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=12,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        initializer_range=0.2,
    )
    return Qwen3ForCausalLM(config).eval()


def test_log_probs_of_padded_rows_are_those_of_each_sample_alone() -> None:
    """The learner's own forward pass, with the bare model where DeepSpeed's engine is in a run."""
    layout = load_layout(LAYOUT, ["train.temperature=0.7"]).layout
    learner, model = Learner(layout, 0, ""), tiny_model()
    learner._engine = model
    log_probs, entropies = learner._log_probs(pack(SAMPLES).tensors(torch.device("cpu")))
    for row, sample in enumerate(SAMPLES):
        prompt, length = len(sample.prompt_ids), len(sample.response_ids)
        logits = model(input_ids=torch.tensor([sample.prompt_ids + sample.response_ids])).logits[0, prompt - 1 : -1]
        alone = torch.distributions.Categorical(logits=logits / 0.7)
        expected = alone.log_prob(torch.tensor(sample.response_ids))
        torch.testing.assert_close(log_probs[row, :length], expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(entropies[row, :length], alone.entropy(), atol=1e-5, rtol=0)
