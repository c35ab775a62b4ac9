"""Several samples in one row: log-probs, losses and gradients are those of the same samples in rows of their own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trainer_support import LAYOUT, ROOT
from transformers import AttentionInterface, Qwen3Config, Qwen3ForCausalLM, Qwen3ForTokenClassification
from variant_support import TOKEN_MEAN

from rltui.layout.load import load_layout
from trainers.data.batch import Rows, Sample, join_columns, packing_efficiency, shard, split, with_columns
from trainers.data.packing import FILLER, packed_rows, share_out
from trainers.data.tensors import RowTensors, row_tensors
from trainers.losses import value_loss
from trainers.objectives import objective
from trainers.roles.attention import check_isolation, prepare_for_packing
from trainers.roles.critic import Critic
from trainers.roles.forward import response_scores
from trainers.roles.learner import Learner
from trainers.roles.sample_attention import NAME, attend_by_sample, sample_lengths
from trainers.roles.sequence_group import SequenceGroup
from trainers.roles.sequence_parallel import share_attention
from trainers.roles.teacher import HfScorer

pytestmark = pytest.mark.trainers

VOCABULARY, TOP_K, PACK = 12, 3, 14
CPU = torch.device("cpu")
LENGTHS = [(3, 2), (1, 4), (2, 1), (1, 1), (4, 6), (2, 5), (5, 1), (1, 2), (3, 3)]
LAYOUTS = {
    "grpo": ["grpo.ratio=sequence", "grpo.clip_low=3e-4", "grpo.clip_high=4e-4", "grpo.aggregation=sequence"],
    "ppo": ["ppo.kl=loss", "ppo.kl_coefficient=0.1"],
    "opd": ["opd.estimator=top_k", f"opd.top_k={TOP_K}", "opd.divergence=jsd", "opd.reward_weight=1"],
}


def samples() -> list[Sample]:
    generator = np.random.default_rng(5)

    def sample(prompt: int, response: int) -> Sample:
        names = ("engine_log_probs", "reference_log_probs", "teacher_log_probs", "values", "returns")
        columns: dict[str, Any] = {name: -generator.uniform(0.5, 3.0, response) for name in (*names, "advantages")}
        columns["teacher_top_ids"] = np.argsort(generator.random((response, VOCABULARY)))[:, :TOP_K]
        columns["teacher_top_log_probs"] = -1.5 - generator.random((response, TOP_K))
        ids = generator.integers(0, VOCABULARY, prompt + response).tolist()
        return Sample(tuple(ids[:prompt]), tuple(ids[prompt:]), columns)

    return [sample(*lengths) for lengths in LENGTHS]


def model(
    kind: Any = Qwen3ForCausalLM, attention: str = "sdpa", dtype: torch.dtype = torch.float64, **more: Any
) -> Any:
    torch.manual_seed(0)
    by_sample, attention = attention == NAME, "sdpa" if attention == NAME else attention
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, initializer_range=0.2, num_labels=1, attn_implementation=attention,
        **more,
    )  # fmt: skip
    made = kind(config).to(dtype).eval()
    assert not by_sample or attend_by_sample(made) == "sdpa"
    return made


def learner_of(algorithm: str, policy: Any, *words: str) -> Learner:
    layout = load_layout(ROOT / "layouts" / "local" / f"{algorithm}-tiny.yaml", [*LAYOUTS[algorithm], *words]).layout
    learner = Learner(layout, 0, "")
    learner._engine, learner._objective = policy, objective(layout)
    return learner


def as_double(rows: Any) -> Any:
    columns = {name: v.double() if v.is_floating_point() else v for name, v in rows.columns.items()}
    return type(rows)(rows.token_ids, rows.attention_mask, rows.response_mask, columns, rows.is_packed)


def loss_and_gradient(learner: Learner, parts: list[Rows], micro_batch: int) -> tuple[float, torch.Tensor]:
    """Of all parts, as if each were a rank's."""
    learner._engine.zero_grad()
    total = 0.0
    for part in parts:
        for rows in part.micro_batches(micro_batch):
            tensors = as_double(row_tensors(rows, CPU))
            loss = learner._objective(learner._scores(tensors), tensors, 70.0).loss
            loss.backward()
            total += float(loss.detach())
    return total, torch.cat([p.grad.flatten() for p in learner._engine.parameters() if p.grad is not None])


@pytest.mark.parametrize(
    ("attention", "dtype", "bound"), [("sdpa", "float64", 1e-10), ("eager", "float32", 1e-6), (NAME, "float64", 1e-10)]
)
@pytest.mark.parametrize("algorithm", ["grpo", "ppo", "opd"])
def test_packed_rows_have_the_losses_and_gradients_of_padded_ones(
    algorithm: str, attention: str, dtype: str, bound: float
) -> None:
    learner = learner_of(algorithm, model(attention=attention, dtype=getattr(torch, dtype)))
    whole, slope = loss_and_gradient(learner, split(samples(), 1), 0)
    assert float(slope.abs().amax()) > 1e-3
    for num_parts, micro_batch, pack_tokens in [
        (1, 0, 0),
        (2, 1, 0),
        (2, 2, PACK),
        (1, 1, PACK),
        (3, 1, 10),
        (1, 0, 99),
    ]:
        parts = split(samples(), num_parts, pack_tokens)
        loss, gradient = loss_and_gradient(learner, parts, micro_batch)
        assert loss == pytest.approx(whole, abs=bound)
        torch.testing.assert_close(gradient, slope, atol=bound, rtol=0)


def test_packed_log_probs_and_teacher_scores_come_back_to_their_samples() -> None:
    policy, batch = model(), samples()
    learner = learner_of("opd", policy, "train.temperature=0.7")
    scorer = HfScorer.__new__(HfScorer)
    scorer._model, scorer._temperature, scorer._micro_batch, scorer._reader = policy, 0.7, 1, None
    parts = split(batch, 2, PACK)
    answers = [scorer.score(part, TOP_K) for part in parts]
    scored = with_columns(
        batch,
        {
            "own": join_columns([learner.log_probs(part) for part in parts], parts, batch),
            "log_probs": join_columns([answer.log_probs for answer in answers], parts, batch),
            "ids": join_columns([answer.top_ids for answer in answers], parts, batch),
            "top": join_columns([answer.top_log_probs for answer in answers], parts, batch),
        },
    )
    for sample in scored:
        prompt, response = len(sample.prompt_ids), list(sample.response_ids)
        ids = torch.tensor([sample.prompt_ids + sample.response_ids])
        alone = (policy(input_ids=ids).logits[0, prompt - 1 : -1] / 0.7).log_softmax(-1)
        expected = alone[range(len(response)), response].detach().numpy()
        best = alone.topk(TOP_K, dim=-1)
        for name in ("own", "log_probs"):
            np.testing.assert_allclose(sample.columns[name], expected, atol=1e-6)
        np.testing.assert_array_equal(sample.columns["ids"], best.indices.numpy())
        np.testing.assert_allclose(sample.columns["top"], best.values.detach().numpy(), atol=1e-6)


def test_a_packed_critic_has_the_values_and_gradients_of_a_padded_one() -> None:
    critic = Critic(load_layout(ROOT / "layouts" / "local" / "ppo-tiny.yaml").layout, 0, "")
    critic._engine = model(Qwen3ForTokenClassification)
    found = []
    for pack_tokens in (0, PACK):
        critic._engine.zero_grad()
        parts = split(samples(), 2, pack_tokens)
        loss: Any = 0.0
        for rows in (rows for part in parts for rows in part.micro_batches(1)):
            tensors = as_double(row_tensors(rows, CPU))
            values, old, returns = critic._values(tensors), tensors.columns["values"], tensors.columns["returns"]
            loss = loss + value_loss(values, old, returns, tensors.response_mask, value_clip=0.5, denominator=9.0).loss
        loss.backward()
        values = join_columns([critic.values(part) for part in parts], parts, samples())
        slope = torch.cat([p.grad.flatten() for p in critic._engine.parameters()])
        found.append((float(loss.detach()), np.concatenate(values), slope))
    (loss, values, slope), (packed_loss, packed_values, packed_slope) = found
    assert packed_loss == pytest.approx(loss, abs=1e-6)  # values are float32 by contract
    np.testing.assert_allclose(packed_values, values, atol=1e-6)
    torch.testing.assert_close(packed_slope, slope, atol=1e-6, rtol=0)
    assert float(slope.abs().amax()) > 1e-3


def test_rows_that_fill_up_take_part_in_the_backward_pass_with_no_weight() -> None:
    """Under ZeRO each rank's hooks must fire as often as the others'."""
    learner = learner_of("grpo", model())
    alone, filler = split(samples()[:1], 2, PACK)
    assert filler.numbers.tolist() == [FILLER]
    loss, gradient = loss_and_gradient(learner, [filler], 1)
    assert loss == 0.0
    assert gradient.numel() == sum(p.numel() for p in learner._engine.parameters())
    assert float(gradient.abs().amax()) == 0.0
    assert len(list(alone.micro_batches(1))) == len(list(filler.micro_batches(1)))


def test_a_model_that_looks_across_samples_is_refused() -> None:
    policy = model()
    check_isolation(lambda rows: response_scores(policy, rows, 1.0).log_probs, CPU)

    def without_bounds(input_ids: Any, position_ids: Any, **options: Any) -> Any:
        return policy(input_ids=input_ids, attention_mask=torch.ones_like(input_ids), **options)

    with pytest.raises(ValueError, match=r"looks across samples.*lengths\.pack=0"):
        check_isolation(lambda rows: response_scores(without_bounds, rows, 1.0, chunked=False).log_probs, CPU)


def test_a_model_that_ranks_cannot_share_rows_of_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ranks that can are in test_deepspeed.py."""
    monkeypatch.setattr(AttentionInterface, "_global_mapping", dict(AttentionInterface._global_mapping))
    policy, group = model(attention=NAME), SequenceGroup(None, 2, 0)

    def recurrent(rows: RowTensors, group: SequenceGroup | None) -> torch.Tensor:
        return rows.token_ids + 0.01 * (group is not None)

    with pytest.raises(ValueError, match=r"differs by 1.0e-02 of .*sequence_parallel=1"):
        share_attention(policy, group, recurrent, CPU)

    def masked(rows: RowTensors, group: SequenceGroup | None) -> torch.Tensor:
        mask = None if group is None else torch.ones(1)
        states = torch.zeros(1, 2, 4, 16)
        positions = torch.arange(4).unsqueeze(0)
        return AttentionInterface()[NAME](policy, states, states, states, mask, position_ids=positions)[0]

    with pytest.raises(ValueError, match=r"sequence_parallel 2: the model cannot share rows: it .* masks packed rows"):
        share_attention(model(attention=NAME), group, masked, CPU)


def test_attention_by_sample_heeds_windows_and_makes_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    window = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}
    whole, slope = loss_and_gradient(learner_of("grpo", model(**window)), split(samples(), 1), 0)
    wide, _ = loss_and_gradient(learner_of("grpo", model()), split(samples(), 1), 0)
    assert wide != pytest.approx(whole, abs=1e-6)
    policy, sizes = model(attention=NAME, **window), []
    inner = torch.nn.functional.scaled_dot_product_attention

    def attend(query: torch.Tensor, *arguments: Any, **named: Any) -> torch.Tensor:
        sizes.append(query.shape[2])
        mask = named.get("attn_mask")
        assert mask is None or mask.shape[-1] == query.shape[2] > 3
        return inner(query, *arguments, **named)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
    loss, gradient = loss_and_gradient(learner_of("grpo", policy), split(samples(), 1, 99), 0)
    assert max(sizes) == max(prompt + response - 1 for prompt, response in LENGTHS)
    assert loss == pytest.approx(whole, abs=1e-10)
    torch.testing.assert_close(gradient, slope, atol=1e-10, rtol=0)


def test_samples_are_found_by_positions_that_start_again() -> None:
    positions = torch.tensor([[0, 1, 2, 0, 0, 1]])
    assert sample_lengths(positions) == [3, 1, 2]
    assert sample_lengths(torch.tensor([[0, 1, 2]])) == [3]


def test_a_model_that_cannot_attend_by_sample_keeps_its_masks() -> None:
    def score(rows: Any) -> torch.Tensor:
        return response_scores(policy, rows, 1.0).log_probs

    policy = model()
    prepare_for_packing(policy, score, CPU)
    assert policy.config._attn_implementation == NAME
    policy = model(attention="eager")
    prepare_for_packing(policy, score, CPU)
    assert policy.config._attn_implementation == "eager"
    policy = model()
    for layer in policy.model.layers:  # one whose layers keep the positions to themselves
        forward = layer.self_attn.forward
        layer.self_attn.forward = lambda *a, forward=forward, **n: forward(*a, **{**n, "position_ids": None})
    prepare_for_packing(policy, score, CPU)
    assert policy.config._attn_implementation == "sdpa"
    policy = model()
    policy.config.layer_types = ["full_attention", "chunked_attention"]
    assert attend_by_sample(policy) is None


lengths_of_samples = st.lists(st.integers(1, 40), max_size=60)


@given(lengths=lengths_of_samples, num_parts=st.integers(1, 5), pack_tokens=st.sampled_from([0, 40, 64, 500]))
def test_every_sample_is_once_with_one_rank_and_ranks_have_as_many_rows(
    lengths: list[int], num_parts: int, pack_tokens: int
) -> None:
    parts = share_out(lengths, num_parts, pack_tokens)
    assert len(parts) == num_parts
    assert len({len(part) for part in parts}) == 1
    found = Counter(number for part in parts for row in part for number in row if number != FILLER)
    assert found == Counter(range(len(lengths)))
    rows = [row for part in parts for row in part if row != [FILLER]]
    assert all(sum(lengths[n] for n in row) <= pack_tokens if pack_tokens else len(row) == 1 for row in rows)
    assert sum(len(part) for part in parts) - len(rows) < num_parts
    assert parts == share_out(lengths, num_parts, pack_tokens)


@given(lengths=lengths_of_samples)
def test_few_rows_are_needed(lengths: list[int]) -> None:
    """First fit decreasing: at most 11/9 of the best plus 6/9 (Dosa 2007)."""
    assert len(packed_rows(lengths, 64)) <= 11 / 9 * -(-sum(lengths) // 40) + 1


def test_ranks_get_about_as_many_tokens() -> None:
    lengths = np.random.default_rng(1).integers(10, 1000, 256).tolist()
    for pack_tokens in (0, 2000):
        tokens = [sum(lengths[n] for row in part for n in row) for part in share_out(lengths, 4, pack_tokens)]
        assert max(tokens) / min(tokens) < 1.03


def test_efficiency_counts_padding_and_waiting() -> None:
    padded = shard(samples(), [], 1, TOKEN_MEAN)
    real = sum(map(sum, LENGTHS))
    assert packing_efficiency(padded, 0) == real / (len(LENGTHS) * (5 + 6))
    packed = shard(samples(), [], 2, TOKEN_MEAN, pack_tokens=PACK)
    passes = [
        [sum(map(sum, [LENGTHS[n] for n in part.numbers])) for part in p.trained[0].rows.micro_batches(1)]
        for p in packed
    ]
    assert packing_efficiency(packed, 1) == real / (2 * sum(map(max, zip(*passes, strict=True))))
    assert packing_efficiency(packed, 1) > 0.9
    assert packing_efficiency(shard([], samples(), 2, TOKEN_MEAN), 1) == 1.0
    shared = shard(samples(), [], 4, TOKEN_MEAN, sharing=4)  # one row after the other, no padding, nobody waits
    assert [part.trained[0].rows.numbers.tolist() for part in shared] == [
        shared[0].trained[0].rows.numbers.tolist()
    ] * 4
    assert packing_efficiency(shared, 0) == packing_efficiency(shared, 2) == 1.0
    assert load_layout(LAYOUT).layout.lengths.pack == 0
