"""Whole runs on a file of one's own, rewarded by a program's tests in the sandbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from trainer_support import ROOT

if TYPE_CHECKING:
    from trainer_support import Attempt

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

FUNCTIONS = f"data.train={ROOT / 'tests/fixtures/data/functions.jsonl'}"
SHORT = ["train.steps=2", "train.prompts_per_step=2", "train.samples_per_prompt=4", "tracking.wandb=disabled"]
SHORT += ["roles.learner.gpus=[1]", "checkpoint.every=0"]


def test_programs_are_run_in_a_proven_sandbox(launch: Callable[..., Attempt]) -> None:
    words = [FUNCTIONS, "data.reward=code", "data.format=code_block", "lengths.prompt=50", "lengths.response=8"]
    attempt = launch(
        1, *SHORT, *words, "data.reward_timeout_s=2", "grpo.filter_zero_std=false", "data.curriculum_skip=0.5"
    )
    assert attempt.wait() == 0, attempt.log()[-3000:]
    assert attempt.events("data") == ["prompts that are longer than lengths.prompt and left out: 1"]
    (event,) = attempt.events("reward_sandbox")
    assert event.startswith("reward sandbox: closed")
    assert 0 < attempt.metrics()[-1]["curriculum/settled_fraction"] <= 1
    assert [line["reward"] for line in attempt.metrics()] == [0.0, 0.0]  # a model that sorts digits writes no program
