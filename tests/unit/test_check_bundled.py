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
    ["train.async_steps=2", "roles.rollout.max_concurrency=8", "train.inflight_updates=true"],
    ["train.async_steps=2", "roles.rollout.engine=vllm", "train.inflight_updates=true"],
    ["data.reward=coin", "grpo.advantage=centered", "grpo.aggregation=sequence", "grpo.filter_zero_std=false"],
    ["roles.reference={}", "grpo.kl_coefficient=0.1", "train.optimizer_steps=2", "train.epochs=2"],
    ["roles.reference={}", "grpo.kl=reward", "grpo.kl_coefficient=0.1", "grpo.ratio=cispo", "grpo.mask_truncated=true"],
    ["grpo.kl=none", "grpo.kl_coefficient=0.1", "grpo.active_sampling_limit=3", "grpo.overlong_penalty_tokens=2"],
    ["algorithm=ppo", "roles.critic={}", "pools={all: {gpus: [2]}}", "roles.learner.pool=all", "roles.learner.gpus=[]"],
    ["algorithm=opd", "roles.teacher={model: m}", "data.reward=none"],
    ["data.train=org/math", "data.reward=math", "lengths.pack=64"],
    ["roles.learner.zero_stage=2", "roles.learner.optimizer=adamw_8bit"],
    ["roles.learner.zero_stage=3", "roles.learner.offload=all", "roles.learner.lora_rank=8", "lengths.pack=64"],
    ["roles.learner.zero_stage=3", "roles.learner.hpz_partition=2", "roles.learner.gather_whole_model=true"],
    ["data.train=rows.jsonl", "data.reward=code", "data.tests_key=test_list", "data.all_tests=true"],
    ["data.eval=builtin/sort-digits", "data.eval_every=10", "roles.reward={workers: 1}"],
    ["data.train=reasoning-gym/chain_sum", "data.options=[max_digits=2]", "data.chat=true", "data.format=answer_tags"],
    ["data.train=rows.parquet", "data.image_key=pictures", "lengths.images=2", "roles.learner.freeze_vision=true"],
    ["data.mixture=[{name: b, train: rows.jsonl, reward: math, weight: 0.5}]"],
    ["data.train=rows.parquet", "data.reward=http", "data.reward_url=http://judge:8000/score"],
    ["data.environment=builtin/guess-order", "data.max_turns=1", "roles.rollout.engine=vllm"],
    ["roles.learner.gpus=[2]", "roles.learner.sequence_parallel=2"],
    ["roles.rollout.router_replay=true", "train.stop=['</answer>']", "lengths.pack=64"],
    ["data.environment=my.games:Chess", "data.reward=none", "roles.reward={workers: 2}"],
    ["roles.learner={model: Qwen/Qwen3-30B-A3B, gpus: [1], lora_rank: 8}"],
    ["data.environment=my.agents:solve", "data.environment_kind=agent", "train.async_steps=2"],
]  # fmt: skip

REFUSED = {
    "grpo.kl_coefficient=0.1": "a KL penalty without the role reference",
    "data.train=builtin/sort-letters": "the task builtin/sort-letters",
    "data.reward=none": "the reward none",
    "data.mixture=[{name: b, train: rows.jsonl, reward: none}]": "the reward none",
    "data.mixture=[{name: b, train: builtin/nothing}]": "the task builtin/nothing",
    "data.eval=builtin/sort-letters": "the task builtin/sort-letters",
    "hardware.gpus_outside_ray=1": "a server on GPUs outside Ray",
    "roles.learner.tensor_parallel=2": "learner tensor_parallel 2",
    "lengths={prompt: 8, response: 4, images: 2, pack: 64}": "images in packed rows",
    "data.environment=builtin/chess": "the environment builtin/chess",
    "roles.rollout={engines: 1, engine: vllm, router_replay: true}": "router_replay with vLLM on CPU",
    "roles.rollout={engines: 1, engine: vllm, quantization: fp8_per_tensor}": "quantization on CPU",
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


def test_images_go_neither_with_adapters_nor_with_shared_rows() -> None:
    words = ["lengths.images=2", "lengths.prompt=8", "roles.learner.lora_rank=8"]
    assert unsupported(load_text(TINY, "tiny.yaml", words).layout) == ("images with LoRA",)
    words[2:] = ["roles.learner.sequence_parallel=2"]
    assert unsupported(load_text(TINY, "tiny.yaml", words).layout) == ("images with sequence_parallel",)
