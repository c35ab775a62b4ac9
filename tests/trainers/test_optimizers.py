"""Learning-rate schedules and AdamW's settings as the layout has them."""

from __future__ import annotations

import math

import pytest
import torch
from trainer_support import LAYOUT

from rltui.layout.load import load_layout
from rltui.layout.schema import Learner
from rltui.layout.settings import Train
from trainers.roles.learner import Learner as LearnerRank
from trainers.roles.optimizers import learning_rate_factor, new_optimizer

pytestmark = pytest.mark.trainers


def train(**changes: object) -> Train:
    usual = {"steps": 11, "prompts_per_step": 1, "samples_per_prompt": 2, "learning_rate": 0.1}
    return Train(**{**usual, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "factors"),
    [
        ({}, {0: 1.0, 10: 1.0, 50: 1.0}),
        ({"warmup_steps": 4}, {0: 0.25, 3: 1.0, 10: 1.0}),
        ({"schedule": "linear"}, {0: 1.0, 1: 1.0, 6: 0.5, 11: 0.0, 20: 0.0}),
        ({"schedule": "linear", "learning_rate_floor": 0.2}, {1: 1.0, 6: 0.6, 11: 0.2}),
        ({"schedule": "cosine"}, {1: 1.0, 6: 0.5, 11: 0.0, 3: (1 + math.cos(math.pi * 0.2)) / 2}),
        ({"schedule": "linear", "steps": 3, "optimizer_steps": 2, "epochs": 2, "warmup_steps": 2}, {1: 1.0, 7: 0.5}),
        ({"schedule": "cosine", "steps": 1, "warmup_steps": 5}, {0: 0.2, 4: 1.0}),
    ],
)
def test_the_learning_rate_follows_its_schedule(changes: dict[str, object], factors: dict[int, float]) -> None:
    found = {step: learning_rate_factor(train(**changes), step) for step in factors}
    assert found == pytest.approx(factors, abs=1e-12)


def test_adamw_has_the_layouts_settings() -> None:
    role = Learner(model="x")
    made = new_optimizer(role, [torch.nn.Parameter(torch.ones(2))], 0.3, train(adam_beta2=0.95, weight_decay=0.01))
    group = made.param_groups[0]
    assert (group["lr"], group["betas"], group["weight_decay"]) == (0.3, (0.9, 0.95), 0.01)


def test_the_rate_of_a_policy_falls_over_the_steps_that_it_makes() -> None:
    words = ["ppo.critic_warmup_steps=20", "train.steps=100", "train.schedule=linear", "train.warmup_steps=0"]
    layout = load_layout(LAYOUT.with_name("ppo-tiny.yaml"), words).layout
    own = LearnerRank(layout, 0, "")._train
    updates = own.optimizer_steps * own.epochs
    assert learning_rate_factor(own, 80 * updates) == 0.0
    assert learning_rate_factor(own, 40 * updates) == pytest.approx(0.5, abs=0.01)
    without = load_layout(LAYOUT, []).layout
    assert LearnerRank(without, 0, "")._train == without.train
