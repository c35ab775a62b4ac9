"""Features that each have tests of their own, several at once: losses and gradients are those of one plain rank."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from rank_support import forking
from trainer_support import LAYOUT
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from free_ports import free_ports
from rltui.layout.load import load_layout
from trainers.data.batch import Sample, shard
from trainers.metrics import merge
from trainers.roles.learner import Learner
from trainers.variants import variant

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainers
RANKS, STEPS, VOCABULARY, EXPERTS, TOP_K, LAYERS = 2, 2, 24, 8, 2, 2
LORA, REPLAY, STALE = "roles.learner.lora_rank=4", "roles.rollout.router_replay=true", "train.async_steps=1"
KL = ("roles.reference={precision: fp32}", "grpo.kl_coefficient=0.1")
ENTROPY, TWICE, COOL = "grpo.entropy_coefficient=0.1", "train.optimizer_steps=2", "train.temperature=0.7"
WORDS = ("train.learning_rate=1e-3", "train.gradient_clip=0.5")
MIXED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # what is minimised; how it is computed
    "experts, shared rows": (
        (REPLAY, *KL, ENTROPY, "grpo.aggregation=sequence"),
        ("zero_stage=3", "sequence_parallel=2", "lengths.pack=60", "micro_batch=1"),
    ),
    "experts, two steps a batch, recomputed": (
        (REPLAY, TWICE, STALE, "grpo.ratio=sequence", "grpo.aggregation=dr_grpo", "grpo.importance=sequence_mean"),
        ("zero_stage=2", "lengths.pack=60", "gradient_checkpointing=true", "micro_batch=2", "offload=optimizer"),
    ),
    "adapters of experts, shared rows, recomputed": (
        (LORA, REPLAY, TWICE, ENTROPY, "grpo.aggregation=sequence"),
        ("zero_stage=3", "sequence_parallel=2", "lengths.pack=60", "gradient_checkpointing=true", "micro_batch=1"),
    ),
    "adapters, shared rows, logits at once": (
        (LORA, *KL, "grpo.kl_estimator=k2", COOL, ENTROPY, "grpo.ratio=cispo", "grpo.importance=mask"),
        ("zero_stage=1", "sequence_parallel=2", "chunked_logits=false", "micro_batch=3"),
    ),
    "adapters, cool, all in host memory": (
        (LORA, TWICE, COOL, "grpo.ratio=gmpo", "grpo.aggregation=sequence_sum"),
        ("zero_stage=3", "offload=all", "micro_batch=2", "gradient_checkpointing=true"),
    ),
}  # fmt: skip


def samples(step: int, *, has_routes: bool) -> list[Sample]:
    """Samples of all lengths, with gaps, of which some share a prompt that is long enough to be read once."""
    source = np.random.default_rng(step)
    shared, found = tuple(source.integers(0, VOCABULARY, 40).tolist()), []
    for number in range(20):
        prompt = shared if number % 5 else tuple(source.integers(0, VOCABULARY, source.integers(1, 12)).tolist())
        length = int(source.integers(1, 9))
        columns: dict[str, Any] = {
            name: -source.uniform(2.5, 3.7, length)
            for name in ("engine_log_probs", "old_log_probs", "reference_log_probs")
        }
        columns |= {"advantages": float(source.normal()), "staleness": float(source.integers(0, 2))}
        routes = np.stack(
            [[source.permutation(EXPERTS)[:TOP_K] for _ in range(LAYERS)] for _ in range(len(prompt) + length - 1)]
        )
        mask = tuple(bool(chosen) for chosen in source.integers(0, 2, length)) if number % 3 == 0 else ()
        ids = tuple(source.integers(0, VOCABULARY, length).tolist())
        given = routes.astype(np.uint8) if has_routes else None
        found.append(Sample(prompt, ids, columns, response_mask=mask, routes=given))
    return found


def reports(path: str, name: str, ways: tuple[str, ...], ranks: int, rank: int, port: int) -> list[Any]:
    """What a rank says of its steps."""
    minimised = MIXED[name][0]
    full = [way if "." in way.partition("=")[0] else f"roles.learner.{way}" for way in ways]
    layout = load_layout(LAYOUT, [f"roles.learner.gpus=[{ranks}]", *WORDS, *minimised, *full]).layout
    learner = Learner(layout, rank, f"{path}/{'experts' if REPLAY in minimised else 'dense'}")
    learner.load("127.0.0.1", port)
    found = []
    for step in range(STEPS):
        shards = shard(
            samples(step, has_routes=REPLAY in minimised),
            [],
            ranks,
            variant(layout.grpo, "aggregation"),
            response_limit=layout.lengths.response,
            optimizer_steps=layout.train.optimizer_steps,
            pack_tokens=layout.lengths.pack,
            sharing=layout.roles.learner.sequence_parallel,
        )
        found.append(learner.train(shards[rank]))
    del learner
    gc.collect()
    return found


def rank_of_two(rank: int, path: str, ports: list[int], answers: Any) -> None:
    os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")
    found = [
        reports(path, name, ways, RANKS, rank, port)
        for (name, (_, ways)), port in zip(MIXED.items(), ports, strict=True)
    ]
    answers.put((rank, found))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, deepspeed_here: None) -> Path:
    """A folder with a model without experts and one of them."""
    path = tmp_path_factory.mktemp("models")
    shape = {
        "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": LAYERS,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.2,
    }  # fmt: skip
    own = {"num_experts": EXPERTS, "num_experts_per_tok": TOP_K, "moe_intermediate_size": 16, "norm_topk_prob": True}
    torch.manual_seed(0)
    Qwen3ForCausalLM(Qwen3Config(**shape)).save_pretrained(path / "dense")
    Qwen3MoeForCausalLM(Qwen3MoeConfig(**shape, **own)).save_pretrained(path / "experts")
    return path


def test_what_is_mixed_computes_what_one_plain_rank_does(models: Path) -> None:
    context, ports = forking(), free_ports(len(MIXED))
    answers = context.Queue()
    path = str(models)
    ranks = [context.Process(target=rank_of_two, args=(rank, path, ports, answers)) for rank in range(RANKS)]
    try:
        for process in ranks:
            process.start()
        plain = [
            reports(path, name, ("zero_stage=0", "chunked_logits=false"), 1, 0, free_ports(1)[0]) for name in MIXED
        ]
        answered = sorted((answers.get(timeout=280) for _ in ranks), key=lambda one: int(one[0]))
    finally:
        for process in ranks:
            process.kill()
            process.join()
    for number, (name, (_, ways)) in enumerate(MIXED.items()):
        sharing = 2 if "sequence_parallel=2" in ways else 1
        for step in range(STEPS):
            found = merge([one[number][step] for _, one in answered], sharing)
            wanted = merge([plain[number][step]], 1)
            assert wanted["grad_norm"] > 0.01, name
            for key in wanted.keys() & {
                "loss",
                "grad_norm",
                "entropy",
                "clip_fraction",
                "mismatch_kl",
                "parity_mean_abs",
            }:
                assert found[key] == pytest.approx(wanted[key], rel=2e-4, abs=1e-5), f"{name}, step {step}: {key}"
