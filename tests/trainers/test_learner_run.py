"""Adapters, packed rows and offload in whole runs: they learn, engines follow, and they resume."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from trainer_support import ROOT

if TYPE_CHECKING:
    from trainer_support import Attempt

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

PPO = ROOT / "layouts" / "local" / "ppo-tiny.yaml"
STEPS = 60


def test_adapters_on_packed_rows_learn_and_resume(launch: Callable[..., Attempt]) -> None:
    words = [f"train.steps={STEPS}", "train.learning_rate=4e-3", "roles.learner.lora_rank=8", "checkpoint.every=50"]
    words += ["lengths.pack=64", "roles.learner.micro_batch=4", "roles.learner.gpus=[1]", "tracking.wandb=disabled"]
    whole = launch(1, *words)
    assert whole.wait() == 0, whole.log()[-3000:]
    lines = whole.metrics()
    assert whole.mean_reward(1, 5) <= 0.35
    assert whole.mean_reward(51, STEPS) >= 0.6
    assert max(line["parity_max_abs"] for line in lines) < 1e-4  # the engine has base and updates
    assert min(line["packing_efficiency"] for line in lines) > 0.9
    newest = whole.run / "checkpoints" / f"step-{STEPS:06d}"
    size = sum(file.stat().st_size for file in newest.rglob("*") if file.is_file())
    assert size < 105_000 * 16 / 3  # all weights with their optimizer take 16 bytes each
    (newest / "COMPLETE").unlink()
    again = launch(2, *words)
    assert again.wait() == 0, again.log()[-3000:]
    assert again.events("checkpoint")[0] == "resumed from step 50"
    assert again.rewards(51, STEPS) == whole.rewards(51, STEPS)


def test_a_policy_and_critic_with_everything_in_host_memory_pack(launch: Callable[..., Attempt]) -> None:
    words = [f"roles.{role}.{word}" for role in ("learner", "critic") for word in ("zero_stage=3", "offload=all")]
    words += ["train.steps=6", "lengths.pack=32", "roles.critic.micro_batch=8", "tracking.wandb=disabled"]
    attempt = launch(1, *words, base=PPO)
    assert attempt.wait() == 0, attempt.log()[-3000:]
    lines = attempt.metrics()
    assert max(line["parity_max_abs"] for line in lines) < 1e-4
    assert all(line["grad_norm"] > 0 and line["critic_grad_norm"] > 0 for line in lines)
    assert lines[-1]["value_mean"] != lines[0]["value_mean"]
    assert min(line["packing_efficiency"] for line in lines) > 0.9
