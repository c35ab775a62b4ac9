"""What the bundled trainers cannot run is named, and everything that they can run passes."""

from __future__ import annotations

import pytest
from check_cases import TINY

from rltui.check.bundled import unsupported
from rltui.check.run import check_text
from rltui.layout.load import load_text

RUNS = [
    [],
    ["roles.learner.model=Qwen/Qwen3-0.6B", "roles.rollout.engine=vllm"],
    ["roles.learner.zero_stage=3", "roles.learner.micro_batch=8", "roles.learner.gradient_checkpointing=true"],
    ["hardware.gpu=H100-SXM-80GB", "hardware.nodes=2", "roles.learner.gpus=[2, 1]", "roles.rollout.engine=vllm",
     "roles.rollout.engines=1", "roles.rollout.tensor_parallel=2", "roles.rollout.enforce_eager=true"],
    ["data.reward=coin", "grpo.advantage=centered", "grpo.aggregation=sequence", "grpo.filter_zero_std=false"],
]  # fmt: skip

REFUSED = {
    "algorithm=ppo": "algorithm ppo",
    "grpo.kl_coefficient=0.1": "grpo.kl_coefficient 0.1",
    "data.train=org/math": "the task org/math",
    "data.reward=math": "the reward math",
    "data.eval=org/test": "an evaluation set",
    "pools={a: {gpus: [1]}}": "pools",
    "roles.reference={}": "the role reference",
    "roles.critic={}": "the role critic",
    "roles.teacher={model: m}": "the role teacher",
    "roles.reward={workers: 1}": "the role reward",
    "hardware.gpus_outside_ray=1": "GPUs outside Ray",
    "roles.rollout.sleep_while_training=true": "engines that sleep while training",
    "roles.rollout.max_concurrency=8": "max_concurrency 8",
    "roles.learner.gpus=[]": "a learner without GPUs of its own",
    "roles.learner.tensor_parallel=2": "learner tensor_parallel 2",
    "roles.learner.sequence_parallel=2": "learner sequence_parallel 2",
    "roles.learner.offload=optimizer": "offload optimizer",
    "roles.learner.lora_rank=8": "LoRA",
    "roles.learner.optimizer=adamw_8bit": "optimizer adamw_8bit",
    "roles.learner.hpz_partition=2": "hpz_partition 2",
    "roles.learner.gather_whole_model=true": "gather_whole_model",
    "train.async_steps=1": "async_steps 1",
    "train.optimizer_steps=2": "2 optimizer steps a batch",
    "train.epochs=3": "3 optimizer steps a batch",
    "lengths.pack=64": "packed rows",
    "lengths.images=2": "images",
}


@pytest.mark.parametrize("words", RUNS, ids=lambda words: " ".join(words)[:40] or "tiny")
def test_what_runs_is_not_refused(words: list[str]) -> None:
    assert unsupported(load_text(TINY, "tiny.yaml", words).layout) == ()


@pytest.mark.parametrize(("word", "reason"), REFUSED.items())
def test_what_does_not_run_is_named(word: str, reason: str) -> None:
    assert unsupported(load_text(TINY, "tiny.yaml", [word]).layout) == (reason,)
    (note,) = [finding for finding in check_text(TINY, "tiny.yaml", [word]).findings if finding.code == "E390"]
    assert reason in note.message
    assert note.severity == "note"
