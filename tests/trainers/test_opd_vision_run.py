"""Distillation with images as a program: the student learns to read what only the image shows."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from trainer_support import ROOT

from waiting import eventually

if TYPE_CHECKING:
    from trainer_support import Attempt

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

LAYOUT = ROOT / "layouts" / "local" / "opd-vision-tiny.yaml"
STEPS = 150
"""The layout's own: seeds 0 to 2 begin to read at step 75 to 115, and read 80 to 93 % at 150."""
CHANCE = 0.01
"""Of guessing two digits: what a student comes to that does not look, or whose engine never gets the vision tower."""


def test_the_student_learns_to_look(launch: Callable[..., Attempt]) -> None:
    """It has until the layout's last step; the run is ended once half of five steps' answers are right."""
    attempt = launch(1, f"train.steps={STEPS}", "checkpoint.every=0", "tracking.wandb=disabled", base=LAYOUT)

    def looks() -> bool:
        rewards = [line["reward"] for line in attempt.metrics()[-5:]]
        assert attempt.running.poll() is None or sum(rewards) >= 2.5, attempt.log()[-3000:]
        return sum(rewards) >= 2.5

    eventually(looks, "answers of a student that looks", deadline_s=500)
    attempt.end()
    lines = attempt.metrics()
    assert max(line["parity_max_abs"] for line in lines) < 1e-4
    assert attempt.mean_reward(1, 10) <= 5 * CHANCE
    assert statistics.fmean(line["reverse_kl"] for line in lines[-5:]) < 0.5 * lines[0]["reverse_kl"]


def test_two_ranks_of_zero_3_run_a_frozen_tower_as_often_as_each_other(launch: Callable[..., Attempt]) -> None:
    """An odd number of samples leaves one rank a row that only fills up; it needs an image too."""
    words = ["hardware.gpus_per_node=4", "roles.learner.gpus=[2]", "roles.learner.zero_stage=3"]
    words += ["roles.learner.freeze_vision=true", "roles.learner.micro_batch=4"]
    words += ["train.steps=3", "train.prompts_per_step=5", "train.samples_per_prompt=3", "tracking.wandb=disabled"]
    attempt = launch(1, *words, base=LAYOUT)
    assert attempt.wait(500) == 0, attempt.log()[-3000:]
    lines = attempt.metrics()
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert max(line["parity_max_abs"] for line in lines) < 1e-4
    assert lines[-1]["reverse_kl"] != lines[0]["reverse_kl"]
