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
WRITTEN = {
    "zero_0": "zero_stage=0",
    "zero_2": "zero_stage=2",
    "up": "zero_stage=2",
    "down": "zero_stage=3",
    "zero_3": "zero_stage=3",
    "lora_0": "zero_stage=0 lora_rank=4",
    "lora_up": "zero_stage=2 lora_rank=4",
    "lora_down": "zero_stage=3 lora_rank=4",
    "lora_3": "zero_stage=3 lora_rank=4",
    "offload_off": "zero_stage=2 offload=optimizer",
    "offload_on": "zero_stage=3",
    "offload_3": "zero_stage=3 offload=all",
    "bf16_3": "zero_stage=3 precision=bf16 micro_batch=2",
    "bf16_lora_2": "zero_stage=2 precision=bf16 lora_rank=4 micro_batch=2",
    "bf16_lora_offload_3": "zero_stage=3 precision=bf16 lora_rank=4 offload=all",
    "experts_up": "zero_stage=2 lora_rank=4",
    "experts_3": "zero_stage=3 lora_rank=4",
}
CHANGED = {
    **WRITTEN,
    "up": "zero_stage=3",
    "down": "zero_stage=2",
    "lora_up": "zero_stage=3 lora_rank=4",
    "lora_down": "zero_stage=2 lora_rank=4",
    "experts_up": "zero_stage=3 lora_rank=4",
    "offload_off": "zero_stage=2",
    "offload_on": "zero_stage=3 offload=all",
}
"""The learner of each variant: as it was saved, and as one learner goes on with it."""


def learners(settings: dict[str, str], experts: str) -> dict[str, tuple[str, ...]]:
    """Variants of the tiny layout by name, those of ``experts`` with the model in this folder."""
    found = {}
    for name, words in settings.items():
        model = f" model={experts}" if name.startswith("experts") else ""
        found[name] = (*SCHEDULE, *(f"roles.learner.{word}" for word in f"{words}{model}".split()))
    return found


@dataclass(frozen=True)
class Whole:
    """Four steps of two learners that nobody disturbed, and what they saved after the second."""

    model: str
    experts: str
    saved: Path
    steps: dict[str, list[dict[str, Any]]]

    def model_of(self, name: str) -> str:
        """The model's folder of a variant."""
        return self.experts if name.startswith("experts") else self.model


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    model, experts = make_model(folder / "model"), make_model(folder / "mixture", experts=4)
    written, saved = learners(WRITTEN, experts), folder / "after-2"
    steps = learner_ranks(2, model, written, [1, 2, 3, 4], folder=folder / "ranks", saves={2: saved})
    return Whole(model, experts, saved, steps)


def test_two_learners_then_one_then_two_are_the_run_that_was_let_be(whole: Whole, tmp_path: Path) -> None:
    """At every stage, and from stage 2 to 3 and back, in weights, moments, schedule and step count.

    With all weights or adapters, on the card or in host memory, of 32 or 16 bits.
    """
    second = tmp_path / "after-3"
    one = learner_ranks(
        1,
        whole.model,
        learners(CHANGED, whole.experts),
        [3],
        folder=tmp_path / "one",
        saves={3: second},
        restore=whole.saved,
        resharded=True,
    )
    written = learners(WRITTEN, whole.experts)
    two = learner_ranks(2, whole.model, written, [4], folder=tmp_path / "two", restore=second, resharded=True)
    for name, steps in whole.steps.items():
        for found, expected in ((one[name][0], steps[2]), (two[name][0], steps[3])):
            for key in ("loss", "grad_norm", "learning_rate"):
                rel, absolute = (1e-2, 1e-3) if "bf16" in name else (1e-5, 1e-6)  # ranks round their own sums
                assert found[key] == pytest.approx(expected[key], rel=rel, abs=absolute), (name, key)
        assert steps[2]["loss"] != pytest.approx(steps[1]["loss"], abs=1e-3)


def as_run(whole: Whole, name: str, run: Path) -> Path:
    """The saved part of a variant as the checkpoint of a run; its folder."""
    checkpoint = run / rundir.CHECKPOINTS / "step-000002"
    shutil.copytree(whole.saved / name, checkpoint)
    (checkpoint / rundir.CHECKPOINT_COMPLETE).write_text("{}")
    attempt = run / rundir.ATTEMPTS / "01"
    attempt.mkdir(parents=True)
    words = [f"roles.learner.model={whole.model}", *learners(WRITTEN, whole.experts)[name]]
    layout = load_layout(LAYOUT, words).layout
    (attempt / rundir.LAYOUT).write_text(dump_layout(layout), encoding="utf-8")
    return checkpoint


@pytest.mark.parametrize("name", ["zero_0", "zero_2", "zero_3", "lora_0", "lora_up", "lora_3", "experts_3"])
def test_an_exported_model_says_what_the_learner_said(
    whole: Whole, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from trainers import export
    from trainers.roles.forward import measure_log_probs, scorer

    monkeypatch.setattr(export, "MAX_FILE", "20KB")  # so that there are several files
    target = export.export(as_run(whole, name, tmp_path / "run"), tmp_path / "exported")
    model = AutoModelForCausalLM.from_pretrained(target).eval()
    rows = pad(samples(99))
    found = measure_log_probs(scorer(model, 1.0), rows, 0, torch.device("cpu"))
    said = np.array(whole.steps[name][1]["log_probs"])
    np.testing.assert_allclose(found[rows.response_mask], said[rows.response_mask], atol=1e-6, rtol=0)
    before = AutoModelForCausalLM.from_pretrained(whole.model_of(name)).eval()
    untrained = measure_log_probs(scorer(before, 1.0), rows, 0, torch.device("cpu"))
    assert np.abs(untrained - said)[rows.response_mask].max() > 1e-3
    assert len(list(target.glob("*.safetensors"))) > 1
    index = json.loads((target / "model.safetensors.index.json").read_text())
    assert "lm_head.weight" not in index["weight_map"]  # tied: written once


@pytest.mark.parametrize("name", ["lora_0", "lora_3", "experts_up"])
def test_exported_adapters_on_the_base_are_the_exported_model(whole: Whole, name: str, tmp_path: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from trainers import export

    checkpoint = as_run(whole, name, tmp_path / "run")
    words = ["--checkpoint", str(checkpoint), "--to"]
    assert export.main([*words, str(tmp_path / "adapter"), "--adapter"]) == 0
    assert export.main([*words, str(tmp_path / "model")]) == 0
    written = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= written
    base = AutoModelForCausalLM.from_pretrained(whole.model_of(name))
    before = {weight: tensor.clone() for weight, tensor in base.state_dict().items()}
    adapted = PeftModel.from_pretrained(base, str(tmp_path / "adapter")).merge_and_unload().state_dict()
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "model").state_dict()
    assert set(merged) == set(adapted) == set(before)
    for weight, tensor in merged.items():
        torch.testing.assert_close(tensor, adapted[weight], atol=1e-6, rtol=0, msg=weight)
    moved = {weight for weight, tensor in merged.items() if float((tensor - before[weight]).abs().max()) > 1e-4}
    assert moved == {weight for weight in merged if "proj" in weight or "mlp.gate" in weight}


def test_adapters_are_added_to_the_base_that_the_learner_computes_with(whole: Whole, tmp_path: Path) -> None:
    """In bf16 the base is rounded before its update is added, and the sum once more where that is asked for."""
    import torch
    from safetensors.torch import load_file

    from trainers import export

    checkpoint = as_run(whole, "bf16_lora_2", tmp_path / "run")
    export.export(checkpoint, tmp_path / "adapter", "fp32", adapter=True)
    export.export(checkpoint, tmp_path / "model", "fp32")
    export.export(checkpoint, tmp_path / "rounded")
    adapter = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    base = load_file(f"{whole.model}/model.safetensors")
    name = "model.layers.1.mlp.up_proj"
    down, up = (adapter[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")
    wanted = base[f"{name}.weight"].bfloat16().float() + 2 * up @ down
    found = load_file(tmp_path / "model" / "model.safetensors")[f"{name}.weight"]
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)
    rounded = load_file(tmp_path / "rounded" / "model.safetensors")[f"{name}.weight"]
    assert torch.equal(rounded, found.bfloat16())


def test_adapters_are_refused_where_there_are_none_and_on_another_base(whole: Whole, tmp_path: Path) -> None:
    from trainers import export

    with pytest.raises(ValueError, match="no adapters: it is of a whole model"):
        export.export(as_run(whole, "zero_2", tmp_path / "plain"), tmp_path / "adapter", adapter=True)
    other = make_model(tmp_path / "other", hidden_size=48)
    checkpoint = as_run(Whole(other, whole.experts, whole.saved, whole.steps), "lora_up", tmp_path / "run")
    with pytest.raises(ValueError, match=r"roles\.learner\.model is not what it was trained on"):
        export.export(checkpoint, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


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
