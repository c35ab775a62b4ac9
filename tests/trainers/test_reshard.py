"""A checkpoint goes on with another number of learners, and back, as if nothing had happened; and into other tools."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rank_program import samples
from rank_support import learner_ranks, make_model
from trainer_support import LAYOUT

from rltui.layout.load import dump_layout, load_layout
from rltui.onnode import rundir
from trainers.data.batch import pad

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

SCHEDULE = ("train.warmup_steps=10", "train.learning_rate=0.01")
WRITTEN = {"zero_0": 0, "zero_2": 2, "up": 2, "down": 3, "zero_3": 3}
CHANGED = {**WRITTEN, "up": 3, "down": 2}
"""ZeRO stage of each variant: as it was saved, and as one learner goes on with it."""


def with_stages(stages: dict[str, int]) -> dict[str, tuple[str, ...]]:
    """Variants of the tiny layout by name."""
    return {name: (*SCHEDULE, f"roles.learner.zero_stage={stage}") for name, stage in stages.items()}


@dataclass(frozen=True)
class Whole:
    """Four steps of two learners that nobody disturbed, and what they saved after the second."""

    model: str
    saved: Path
    steps: dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    model, saved = make_model(folder / "model"), folder / "after-2"
    steps = learner_ranks(2, model, with_stages(WRITTEN), [1, 2, 3, 4], folder=folder / "ranks", saves={2: saved})
    return Whole(model, saved, steps)


def test_two_learners_then_one_then_two_are_the_run_that_was_let_be(whole: Whole, tmp_path: Path) -> None:
    """At every stage, and from stage 2 to 3 and back, in weights, moments, schedule and step count."""
    second = tmp_path / "after-3"
    one = learner_ranks(
        1,
        whole.model,
        with_stages(CHANGED),
        [3],
        folder=tmp_path / "one",
        saves={3: second},
        restore=whole.saved,
        resharded=True,
    )
    two = learner_ranks(
        2, whole.model, with_stages(WRITTEN), [4], folder=tmp_path / "two", restore=second, resharded=True
    )
    for name, steps in whole.steps.items():
        for found, expected in ((one[name][0], steps[2]), (two[name][0], steps[3])):
            for key in ("loss", "grad_norm", "learning_rate"):
                assert found[key] == pytest.approx(expected[key], rel=1e-5, abs=1e-6), (name, key)
        assert steps[2]["loss"] != pytest.approx(steps[1]["loss"], abs=1e-3)


def as_run(whole: Whole, name: str, run: Path) -> Path:
    """The saved part of a variant as the checkpoint of a run; its folder."""
    checkpoint = run / rundir.CHECKPOINTS / "step-000002"
    shutil.copytree(whole.saved / name, checkpoint)
    (checkpoint / rundir.CHECKPOINT_COMPLETE).write_text("{}")
    attempt = run / rundir.ATTEMPTS / "01"
    attempt.mkdir(parents=True)
    layout = load_layout(LAYOUT, [f"roles.learner.model={whole.model}"]).layout
    (attempt / rundir.LAYOUT).write_text(dump_layout(layout), encoding="utf-8")
    return checkpoint


@pytest.mark.parametrize("name", ["zero_0", "zero_2", "zero_3"])
def test_an_exported_model_says_what_the_learner_said(
    whole: Whole, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from trainers import export
    from trainers.roles.forward import measure_log_probs

    monkeypatch.setattr(export, "MAX_FILE", "20KB")  # so that there are several files
    target = export.export(as_run(whole, name, tmp_path / "run"), tmp_path / "exported")
    model = AutoModelForCausalLM.from_pretrained(target).eval()
    rows = pad(samples(99))
    found = measure_log_probs(model, rows, 1.0, 0, torch.device("cpu"))
    said = np.array(whole.steps[name][1]["log_probs"])
    np.testing.assert_allclose(found[rows.response_mask], said[rows.response_mask], atol=1e-6, rtol=0)
    before = AutoModelForCausalLM.from_pretrained(whole.model).eval()
    untrained = measure_log_probs(before, rows, 1.0, 0, torch.device("cpu"))
    assert np.abs(untrained - said)[rows.response_mask].max() > 1e-3
    assert len(list(target.glob("*.safetensors"))) > 1
    index = json.loads((target / "model.safetensors.index.json").read_text())
    assert "lm_head.weight" not in index["weight_map"]  # tied: written once


def test_export_takes_another_precision_and_refuses_what_is_torn_or_there(whole: Whole, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    from trainers import export

    checkpoint = as_run(whole, "zero_3", tmp_path / "run")
    words = ["--checkpoint", str(checkpoint), "--to", str(tmp_path / "half"), "--precision", "bf16"]
    assert export.main(words) == 0
    assert str(AutoModelForCausalLM.from_pretrained(tmp_path / "half").dtype) == "torch.bfloat16"
    assert export.main(words) == 1
    with pytest.raises(ValueError, match="is there already"):
        export.export(checkpoint, tmp_path / "half")
    (checkpoint / rundir.CHECKPOINT_COMPLETE).unlink()
    with pytest.raises(ValueError, match="no complete checkpoint"):
        export.export(checkpoint, tmp_path / "torn")
    assert not (tmp_path / "torn").exists()
