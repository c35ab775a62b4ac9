"""What a resubmission changes of the optimizer counts from the checkpoint on, though that holds the old settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_support import learner_ranks, make_model

pytestmark = pytest.mark.trainers

ROLES = {
    "zero_0": "roles.learner.zero_stage=0",
    "zero_2": "roles.learner.zero_stage=2",
    "zero_3": "roles.learner.zero_stage=3",
    "lora_2": "roles.learner.zero_stage=2 roles.learner.lora_rank=4",
}
BEFORE = ("train.learning_rate=0.01", "train.weight_decay=0", "train.schedule=constant", "train.steps=10")
AFTER = ("train.learning_rate=0.001", "train.weight_decay=0.1", "train.schedule=linear", "train.steps=10")


@pytest.mark.parametrize("resharded", [False, True])
def test_a_checkpoint_goes_on_with_the_learning_rate_of_the_layout(
    resharded: bool, tmp_path: Path, deepspeed_here: None
) -> None:
    model = make_model(tmp_path / "model")
    before = {name: (*words.split(), *BEFORE) for name, words in ROLES.items()}
    changed = {name: (*words.split(), *AFTER) for name, words in ROLES.items()}
    saves = {1: tmp_path / "saved"}
    learner_ranks(1, model, before, [0, 1], folder=tmp_path / "before", saves=saves)
    found = learner_ranks(1, model, changed, [2, 3], folder=tmp_path / "after", restore=saves[1], resharded=resharded)
    for name in ROLES:
        # nine of ten steps lie between the first and the last
        rates = [report["learning_rate"] for report in found[name]]
        assert rates == pytest.approx([0.001 * (1 - 1 / 9), 0.001 * (1 - 2 / 9)]), name
