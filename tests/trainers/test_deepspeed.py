"""Learners under real DeepSpeed in this process, against the same steps in plain torch.

Keys that save memory change where things live and in what pieces they are computed, and nothing else.
"""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rank_support import forking
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from variant_support import TOKEN_MEAN

from free_ports import free_ports
from rltui.layout.load import load_layout
from trainers.data.batch import Sample, shard, split
from trainers.data.tensors import row_tensors
from trainers.metrics import merge
from trainers.objectives import objective
from trainers.roles.forward import measure_log_probs, response_scores, scorer
from trainers.roles.learner import Learner
from trainers.roles.reference import Reference
from trainers.roles.zero import exported_shapes, full_parameters

pytestmark = pytest.mark.trainers

LAYOUT = Path(__file__).resolve().parents[2] / "layouts" / "local" / "grpo-tiny.yaml"
WORDS = (
    *("grpo.importance=off", "grpo.entropy_coefficient=0.1"),
    *("train.learning_rate=1e-3", "train.weight_decay=0.01", "train.gradient_clip=0.5"),
)
STEPS = 4


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory, deepspeed_here: None) -> str:
    """A folder with a model, and beside it one of ``experts``."""
    path = tmp_path_factory.mktemp("model")
    shape = {
        "vocab_size": 12, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.2, "tie_word_embeddings": True,
    }  # fmt: skip
    torch.manual_seed(0)
    Qwen3ForCausalLM(Qwen3Config(**shape)).save_pretrained(path / "dense")
    own = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    Qwen3MoeForCausalLM(Qwen3MoeConfig(**shape, **own)).save_pretrained(path / "experts")
    return str(path / "dense")


def samples(count: int = 9) -> list[Sample]:
    generator = np.random.default_rng(5)
    found = []
    for _ in range(count):
        prompt, response = int(generator.integers(1, 5)), int(generator.integers(1, 7))
        ids = tuple(generator.integers(0, 12, prompt + response).tolist())
        columns = {"engine_log_probs": -generator.uniform(2, 3, response), "advantages": generator.normal()}
        found.append(Sample(ids[:prompt], ids[prompt:], columns))
    return found


def learner_of(path: str, *words: str, ranks: int = 1, rank: int = 0, port: int = 0) -> Learner:
    layout = load_layout(LAYOUT, [f"roles.learner.gpus=[{ranks}]", *WORDS, *words]).layout
    learner = Learner(layout, rank, path)
    learner.load("127.0.0.1", port or free_ports(1)[0])
    return learner


def weights_of(learner: Learner) -> dict[str, torch.Tensor]:
    whole = learner._role.gather_whole_model
    return {name: tensor.clone() for name, tensor in full_parameters(learner._engine.module, at_once=whole)}


def train(learner: Learner, steps: int = STEPS, rank: int = 0) -> list[Any]:
    sharing, pack = learner._role.sequence_parallel, learner._layout.lengths.pack
    shards = shard(samples(), [], learner._world, TOKEN_MEAN, pack_tokens=pack, sharing=sharing)
    return [learner.train(shards[rank]) for _ in range(steps)]


def save(learner: Learner, folder: Path) -> None:
    learner.begin_save(str(folder))
    learner.finish_save()


@pytest.fixture(scope="module")
def plain(model_path: str) -> tuple[dict[str, torch.Tensor], list[float]]:
    """Weights after some steps, and the gradients' norms, by torch alone: all samples at once, padded."""
    layout = load_layout(LAYOUT, WORDS).layout
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    rows, loss_of, norms = row_tensors(split(samples(), 1)[0], torch.device("cpu")), objective(layout), []
    tokens = float(rows.response_mask.sum())
    for _ in range(STEPS):
        optimizer.zero_grad()
        scores = response_scores(model, rows, 1.0, chunked=False, entropy_gradient=True)
        loss_of(scores, rows, tokens).loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
        optimizer.step()
    return {name: parameter.detach() for name, parameter in model.named_parameters()}, norms


def check_same(learner: Learner, reports: list[Any], plain: tuple[dict[str, torch.Tensor], list[float]]) -> None:
    weights, norms = plain
    assert min(norms) > 0.5  # so that clipping matters
    assert [report.grad_norm for report in reports] == pytest.approx(norms, rel=1e-4)
    found = weights_of(learner)
    assert list(found) == list(weights)
    for name, tensor in found.items():
        # steps of 1e-3 each; Adam magnifies the rounding of gradients that are almost 0
        torch.testing.assert_close(tensor, weights[name], atol=1e-5, rtol=0, msg=name)


EXACT = [
    ["zero_stage=0"],
    ["zero_stage=0", "micro_batch=2"],
    ["zero_stage=1", "offload=optimizer", "micro_batch=2"],
    ["zero_stage=2", "micro_batch=1"],
    ["zero_stage=2", "gradient_checkpointing=true", "micro_batch=3"],
    ["zero_stage=2", "offload=optimizer", "lengths.pack=14", "micro_batch=1"],
    ["zero_stage=3", "micro_batch=2", "gather_whole_model=true"],
    ["zero_stage=3", "offload=all", "lengths.pack=14", "gradient_checkpointing=true"],
]


def full(words: list[str]) -> list[str]:
    return [word if word.startswith("lengths.") else f"roles.learner.{word}" for word in words]


@pytest.mark.parametrize("words", EXACT, ids=" ".join)
def test_every_way_to_save_memory_makes_the_steps_of_plain_torch(words: list[str], model_path: str, plain: Any) -> None:
    learner = learner_of(model_path, *full(words))
    check_same(learner, train(learner), plain)
    del learner
    gc.collect()


@pytest.mark.parametrize(
    "words", [["zero_stage=2"], ["zero_stage=3", "precision=bf16"], ["zero_stage=1", "offload=optimizer"]], ids=" ".join
)
def test_moments_of_8_bits_make_nearly_the_same_steps(words: list[str], model_path: str, plain: Any) -> None:
    learner = learner_of(model_path, *full([*words, "optimizer=adamw_8bit"]))
    full_bytes = learner_of(model_path, *full(words)).checkpoint_bytes()
    reports = train(learner)
    weights, norms = plain
    assert [report.grad_norm for report in reports] == pytest.approx(norms, rel=0.05)
    inner = getattr(learner._engine.optimizer, "optimizer", learner._engine.optimizer)
    moments = [value for state in inner.state.values() for name, value in state.items() if name.startswith("state")]
    assert {moment.dtype for moment in moments if moment.numel() >= 4096} == {torch.uint8}
    apart = torch.cat(
        [(tensor.float() - weights[name]).flatten().abs() for name, tensor in weights_of(learner).items()]
    )
    assert float(apart.max()) < STEPS * 1e-3 + 4e-3 * ("precision=bf16" in words)
    assert float(apart.mean()) < 1e-4 + 4e-4 * ("precision=bf16" in words)
    assert learner.checkpoint_bytes() < 0.67 * full_bytes
    del learner
    gc.collect()


@pytest.mark.parametrize("stage", [2, 3])
def test_moments_of_8_bits_are_gone_on_from(stage: int, model_path: str, tmp_path: Path) -> None:
    words = full([f"zero_stage={stage}", "optimizer=adamw_8bit"])
    learner = learner_of(model_path, *words)
    train(learner, 2)
    save(learner, tmp_path)
    train(learner, 2)
    resumed = learner_of(model_path, *words)
    resumed.restore(str(tmp_path))
    train(resumed, 2)
    for name, tensor in weights_of(learner).items():
        assert torch.equal(tensor, weights_of(resumed)[name]), name
    del learner, resumed
    gc.collect()


@pytest.mark.parametrize(
    "words",
    [["zero_stage=0"], ["zero_stage=2", "precision=bf16"], ["zero_stage=2", "offload=optimizer"], ["zero_stage=3"]],
    ids=" ".join,
)
def test_a_checkpoint_is_of_the_step_at_which_it_began(words: list[str], model_path: str, tmp_path: Path) -> None:
    learner, trained = learner_of(model_path, *full(words)), threading.Event()
    train(learner, 2)
    write = learner._writer._write

    def write_later(content: Any, path: str) -> None:
        assert trained.wait(300)
        write(content, path)

    learner._writer._write = write_later  # type: ignore[method-assign]
    learner.begin_save(str(tmp_path), copying=1)
    train(learner, 2)
    trained.set()
    written = learner.finish_save()
    assert written.size == sum(file.stat().st_size for file in tmp_path.rglob("*.pt"))
    resumed = learner_of(model_path, *full(words))
    resumed.restore(str(tmp_path))
    train(resumed, 2)
    for name, tensor in weights_of(learner).items():
        assert torch.equal(tensor, weights_of(resumed)[name]), name
    del learner, resumed
    gc.collect()


RANKS = 4
DIVIDED = [
    ["zero_stage=3", "hpz_partition=2", "lengths.pack=14", "micro_batch=1"],
    ["zero_stage=2", "sequence_parallel=2", "micro_batch=2"],
    ["zero_stage=3", "sequence_parallel=2", "lengths.pack=14", "micro_batch=1", "gradient_checkpointing=true"],
    ["zero_stage=1", "sequence_parallel=4"],
]
"""Keys that divide work among ranks; all in one start."""


def rank_of_several(rank: int, path: str, ports: list[int], answers: Any) -> None:
    os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")
    found = []
    for port, words in zip(ports, DIVIDED, strict=True):
        learner = learner_of(path, *full(words), ranks=RANKS, rank=rank, port=port)
        sharing = learner._role.sequence_parallel
        reports, said = train(learner, rank=rank), learner.log_probs(split(samples(), sharing, 0, sharing)[0])
        weights = {name: tensor.numpy() for name, tensor in weights_of(learner).items()}
        found.append((reports, said, weights if rank == 0 else {}))
    layout = load_layout(LAYOUT, [f"roles.learner.gpus=[{RANKS}]", "roles.reference={precision: fp32}"]).layout
    reference = Reference(layout, rank, path)
    reference.load("127.0.0.1", ports[0])
    held = sum(parameter.ds_tensor.numel() for parameter in reference._model.parameters())
    answers.put((rank, found, reference.log_probs(split(samples(), RANKS)[rank]), held))


def test_ranks_that_divide_samples_tokens_or_weights_find_what_one_does(model_path: str, plain: Any) -> None:
    context, ports = forking(), free_ports(len(DIVIDED))
    answers = context.Queue()
    ranks = [context.Process(target=rank_of_several, args=(r, model_path, ports, answers)) for r in range(RANKS)]
    try:
        for process in ranks:
            process.start()
        answered = sorted((answers.get(timeout=280) for _ in ranks), key=lambda one: int(one[0]))
    finally:
        for process in ranks:
            process.kill()
            process.join()
    alone = learner_of(model_path)
    losses, rows = [report.loss for report in train(alone)], split(samples(), 1)[0]
    expected = alone.log_probs(rows)[rows.response_mask]
    for words, *of_ranks in zip(DIVIDED, *(one[1] for one in answered), strict=True):
        sharing = next((int(word[-1]) for word in words if word.startswith("sequence_parallel")), 1)
        weights, norms = plain
        for reports, said, _ in of_ranks:
            assert [report.grad_norm for report in reports] == pytest.approx(norms, rel=1e-4), words
            np.testing.assert_allclose(said[rows.response_mask], expected, atol=1e-4, err_msg=" ".join(words))
        for name, array in of_ranks[0][2].items():
            np.testing.assert_allclose(array, weights[name].numpy(), atol=1e-5, err_msg=f"{words} {name}")
        steps = [merge([reports[step] for reports, *_ in of_ranks], sharing) for step in range(STEPS)]
        assert [step["loss"] for step in steps] == pytest.approx(losses, abs=1e-5), words
    policy = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
    for part, (_, _, said, held) in zip(split(samples(), RANKS), answered, strict=True):
        whole = measure_log_probs(scorer(policy), part, 0, torch.device("cpu"))
        np.testing.assert_allclose(said[part.response_mask], whole[part.response_mask], atol=1e-5)
        assert held < policy.num_parameters() / RANKS * 1.2


@pytest.mark.parametrize("kind", ["dense", "experts"])
@pytest.mark.parametrize("stage", [0, 2, 3])
def test_adapters_are_trained_alone_and_engines_get_the_merged_weights(
    stage: int, kind: str, model_path: str, tmp_path: Path
) -> None:
    model_path = str(Path(model_path).with_name(kind))
    words = full([f"zero_stage={stage}", "lora_rank=4", "lora_alpha=12", "gradient_checkpointing=true"])
    learner = learner_of(model_path, *words)
    base = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
    manifest = [(meta.name, meta.shape) for meta in learner.manifest()]
    assert manifest == [(name, tuple(p.shape)) for name, p in base.named_parameters()]
    for name, tensor in weights_of(learner).items():
        torch.testing.assert_close(tensor, base.get_parameter(name).detach(), atol=0, rtol=0, msg=name)
    reports = train(learner)
    assert all(report.grad_norm > 0.05 for report in reports)
    merged, frozen = weights_of(learner), ("norm", "embed_tokens")
    for name, tensor in merged.items():
        moved = float((tensor - base.get_parameter(name).detach()).abs().max())
        assert (moved == 0.0) == any(word in name for word in frozen), f"{name} moved by {moved}"
    base.load_state_dict(merged, strict=False)
    rows = split(samples(), 1)[0]
    scores = response_scores(base, row_tensors(rows, torch.device("cpu")), 1.0).log_probs.detach().numpy()
    np.testing.assert_allclose(learner.log_probs(rows)[rows.response_mask], scores[rows.response_mask], atol=1e-5)
    save(learner, tmp_path)
    written = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert written < 2.5 * learner.checkpoint_bytes() < 16 * base.num_parameters()
    again = learner_of(model_path, *words)
    again.restore(str(tmp_path))
    assert all(torch.equal(merged[name], tensor) for name, tensor in weights_of(again).items())
    assert train(again, 1)[0].grad_norm == train(learner, 1)[0].grad_norm
    del learner, again
    gc.collect()


@pytest.mark.parametrize("kind", ["dense", "experts"])
def test_merging_is_that_of_peft(kind: str, model_path: str) -> None:
    learner = learner_of(str(Path(model_path).with_name(kind)), *full(["zero_stage=0", "lora_rank=3"]))
    train(learner)
    ours = weights_of(learner)
    theirs = learner._engine.module.merge_and_unload().state_dict()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], atol=1e-6, rtol=0, msg=name)


@pytest.fixture
def fp16_on_cpu(monkeypatch: pytest.MonkeyPatch, model_path: str) -> str:
    """DeepSpeed takes fp16 only where the CPU multiplies it in hardware; torch does it everywhere."""
    from deepspeed.accelerator import get_accelerator

    monkeypatch.setattr(get_accelerator(), "is_fp16_supported", lambda: True)
    return model_path


@pytest.mark.parametrize(
    "words", [["zero_stage=0"], ["zero_stage=2", "offload=optimizer"], ["zero_stage=3"]], ids=" ".join
)
def test_a_step_that_overflows_is_not_made_and_the_scale_falls_and_survives(
    words: list[str], fp16_on_cpu: str, tmp_path: Path, plain: Any
) -> None:
    precision = ["precision=fp16", *words]
    learner = learner_of(fp16_on_cpu, *full(precision))
    [first] = train(learner, 1)
    assert (first.overflow_steps, first.loss_scale) == (0, 2.0**16)
    assert first.grad_norm == pytest.approx(plain[1][0], rel=0.01)
    learner._engine.optimizer.loss_scaler.cur_scale = 2.0**24
    before = weights_of(learner)
    skipped = train(learner, 3)
    assert [report.overflow_steps for report in skipped] == [1, 1, 1]
    assert skipped[-1].loss_scale < 2.0**24
    assert all(torch.equal(before[name], tensor) for name, tensor in weights_of(learner).items())
    metrics = merge(skipped[-1:])
    assert (metrics["overflow_steps"], metrics["loss_scale"]) == (1.0, skipped[-1].loss_scale)
    assert metrics["grad_norm"] == 0.0
    assert np.isfinite(metrics["loss"])
    save(learner, tmp_path)
    again = learner_of(fp16_on_cpu, *full(precision))
    again.restore(str(tmp_path))
    assert again.loss_scale == learner.loss_scale
    while (report := train(again, 1)[0]).overflow_steps:
        assert report.loss_scale >= 1.0
    assert report.loss_scale < 2.0**24
    assert not all(torch.equal(before[name], tensor) for name, tensor in weights_of(again).items())
    del learner, again
    gc.collect()


def test_16_bits_train_float32_weights(model_path: str) -> None:
    """Steps of 3e-4 on weights of 1 are less than bf16 can hold, 2e-3: each alone would be lost, and they add up."""
    learner = learner_of(model_path, "train.learning_rate=3e-4", *full(["zero_stage=0", "precision=bf16"]))
    before = weights_of(learner)["model.norm.weight"].float()
    assert float(before.min()) == 1.0
    train(learner, 1)
    assert torch.equal(weights_of(learner)["model.norm.weight"].float(), before)
    train(learner, 30)
    after = weights_of(learner)["model.norm.weight"].float()
    assert not torch.equal(after, before)


def test_only_16_bits_report_a_loss_scale(model_path: str) -> None:
    learner = learner_of(model_path)
    metrics = merge(train(learner, 1))
    assert "loss_scale" not in metrics
    assert "overflow_steps" not in metrics
    assert list(exported_shapes(learner._engine.module)) == list(weights_of(learner))


@pytest.mark.parametrize(
    "words", [["zero_stage=0"], ["zero_stage=2"], ["zero_stage=2", "precision=bf16"]], ids=" ".join
)
def test_a_gradient_that_is_no_number_is_told_in_every_precision(words: list[str], model_path: str) -> None:
    learner = learner_of(model_path, *full(words))
    next(iter(learner._engine.module.parameters())).register_hook(lambda grad: grad * np.nan)
    metrics = merge(train(learner, 1))
    if words == ["zero_stage=0"]:  # torch's optimizer makes the step
        assert np.isnan(metrics["grad_norm"])
    else:
        assert metrics["overflow_steps"] == 1.0
    assert np.isfinite(metrics["loss"])
