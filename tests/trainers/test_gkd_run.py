"""Distillation in which half of the steps take the dataset's own answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from trainer_support import ROOT

if TYPE_CHECKING:
    from trainer_support import Attempt

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

OPD = ROOT / "layouts/local/opd-tiny.yaml"
MIXED = [
    "train.steps=40", "opd.on_policy_fraction=0.5", "opd.divergence=jsd", "data.eval=builtin/sort-digits",
    "data.eval_every=40", "data.eval_prompts=200", "train.learning_rate=2.0e-3", "tracking.wandb=disabled",
]  # fmt: skip


def test_the_student_learns_from_its_own_samples_and_from_given_answers(launch: Callable[..., Attempt]) -> None:
    attempt = launch(1, *MIXED, base=OPD)
    assert attempt.wait() == 0, attempt.log()[-3000:]
    before, *lines = attempt.metrics()
    assert before["eval/pass_at_1"] < 0.4
    assert lines[-1]["eval/pass_at_1"] > before["eval/pass_at_1"] + 0.2
    own, given = ([line for line in lines if line["on_policy"] == share] for share in (1.0, 0.0))
    assert min(len(own), len(given)) >= 10
    assert all(line["parity_max_abs"] < 1e-4 and "reward" in line for line in own)
    assert not any("parity_max_abs" in line or "reward" in line for line in given)
    assert all(line["response_length"] == 4.0 for line in given)
    assert given[-1]["loss"] < given[0]["loss"]
    assert [line["weight_version"] for line in lines] == list(range(1, 41))
