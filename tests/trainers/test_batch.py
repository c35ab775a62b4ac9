"""Padding samples into rows, splitting rows over ranks, and the log-probabilities a learner gets from such rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from trainer_support import LAYOUT
from transformers import Qwen3Config, Qwen3ForCausalLM
from variant_support import AGGREGATION, TOKEN_MEAN

from rltui.layout.load import load_layout
from trainers.data.batch import Sample, join_columns, pad, shard, split, stack
from trainers.data.packing import FILLER
from trainers.data.tensors import row_tensors
from trainers.roles.learner import Learner

pytestmark = pytest.mark.trainers

SAMPLES = [
    Sample((5, 6, 7), (8, 9), {"engine_log_probs": (-0.1, -0.2), "advantages": 1.0}),
    Sample((5,), (8, 9, 10, 2), {"engine_log_probs": (-0.3, -0.4, -0.5, -0.6), "advantages": (-1.0, 0.0, 2.0, 3.0)}),
    Sample((4, 4), (2,), {"engine_log_probs": (-0.7,), "advantages": 0.5}),
]


def test_prompts_end_and_responses_begin_in_the_same_column() -> None:
    rows = pad(SAMPLES)
    assert rows.token_ids.tolist() == [[5, 6, 7, 8, 9, 0, 0], [0, 0, 5, 8, 9, 10, 2], [0, 4, 4, 2, 0, 0, 0]]
    assert rows.attention_mask.astype(int).tolist() == [
        [1, 1, 1, 1, 1, 0, 0],
        [0, 0, 1, 1, 1, 1, 1],
        [0, 1, 1, 1, 0, 0, 0],
    ]
    assert rows.response_mask.astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]
    assert rows.columns["engine_log_probs"][0].tolist() == pytest.approx([-0.1, -0.2, 0.0, 0.0])
    assert rows.columns["advantages"].tolist() == [[1, 1, 0, 0], [-1, 0, 2, 3], [0.5, 0, 0, 0]]


@pytest.mark.parametrize("num_parts", [1, 2, 3, 5])
def test_parts_are_equal_and_what_fills_up_weighs_nothing(num_parts: int) -> None:
    parts = split(SAMPLES, num_parts)
    assert len({len(part) for part in parts}) == 1
    assert sorted(n for part in parts for n in part.numbers if n != FILLER) == [0, 1, 2]
    assert sum(int(part.response_mask.sum()) for part in parts) == 7
    assert sum(part.real_tokens for part in parts) == 13
    for part in parts:
        for row, number in enumerate(part.numbers):
            tokens = part.token_ids[row][part.attention_mask[row]].tolist()
            sample = SAMPLES[2 if number == FILLER else number]
            assert tokens == [*sample.prompt_ids, *sample.response_ids]
            if number == FILLER:
                assert float(np.abs(part.columns["advantages"][row]).sum()) == 0.0


def test_no_samples_split_into_empty_parts() -> None:
    assert [len(part) for part in split([], 2)] == [0, 0]
    assert [list(part.micro_batches(1)) for part in split([], 2, pack_tokens=9)] == [[], []]


def test_every_shard_has_the_denominator_of_the_whole_batch() -> None:
    assert {part.trained[0].denominator for part in shard(SAMPLES, [], 2, TOKEN_MEAN)} == {7.0}
    assert {part.trained[0].denominator for part in shard(SAMPLES, SAMPLES, 2, AGGREGATION["sequence"])} == {3.0}
    assert [part.trained for part in shard([], SAMPLES, 2, TOKEN_MEAN)] == [(), ()]


def test_every_epoch_sees_every_sample_once_in_equal_shares() -> None:
    shards = shard(SAMPLES, [], 2, AGGREGATION["sequence"], optimizer_steps=2, epochs=3, seed=7)
    assert [len(part.trained) for part in shards] == [6, 6]
    for epoch in range(3):
        batches = [part.trained[2 * epoch + number] for part in shards for number in range(2)]
        assert sum(int(batch.rows.response_mask.any(axis=1).sum()) for batch in batches) == len(SAMPLES)
    assert len({len(part.trained[0].rows) for part in shards}) == 1


def test_more_optimizer_steps_than_samples_leave_no_empty_step() -> None:
    [alone] = shard(SAMPLES, [], 1, TOKEN_MEAN, optimizer_steps=8)
    assert [batch.rows.response_mask.any(axis=1).sum() for batch in alone.trained] == [1, 1, 1]


def test_answers_of_ranks_come_back_one_a_sample_without_padding() -> None:
    parts = split(SAMPLES, 2)
    together = join_columns([part.columns["engine_log_probs"] for part in parts], parts, SAMPLES)
    assert [len(values) for values in together] == [2, 4, 1]
    assert together[1].tolist() == pytest.approx([-0.3, -0.4, -0.5, -0.6])


@pytest.mark.parametrize(("size", "expected"), [(0, [3]), (1, [1, 1, 1]), (2, [2, 1]), (9, [3])])
def test_micro_batches_cover_all_rows(size: int, expected: list[int]) -> None:
    assert [len(part) for part in pad(SAMPLES).micro_batches(size)] == expected


def test_micro_batches_are_no_wider_than_their_tokens_and_answers_come_back_as_wide() -> None:
    parts = list(pad(SAMPLES).micro_batches(1))
    assert [part.token_ids.tolist() for part in parts] == [[[5, 6, 7, 8, 9]], [[5, 8, 9, 10, 2]], [[4, 4, 2]]]
    assert [part.columns["advantages"].tolist() for part in parts] == [[[1, 1]], [[-1, 0, 2, 3]], [[0.5]]]
    answers = stack([part.columns["advantages"] for part in parts], 4)
    assert answers.tolist() == pad(SAMPLES).columns["advantages"].tolist()


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
    scores = learner._scores(row_tensors(pad(SAMPLES), torch.device("cpu")))
    log_probs, entropies = scores.log_probs, scores.entropies
    for row, sample in enumerate(SAMPLES):
        prompt, length = len(sample.prompt_ids), len(sample.response_ids)
        logits = model(input_ids=torch.tensor([sample.prompt_ids + sample.response_ids])).logits[0, prompt - 1 : -1]
        alone = torch.distributions.Categorical(logits=logits / 0.7)
        expected = alone.log_prob(torch.tensor(sample.response_ids))
        torch.testing.assert_close(log_probs[row, :length], expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(entropies[row, :length], alone.entropy(), atol=1e-5, rtol=0)
