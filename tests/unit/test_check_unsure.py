"""What a layout is not sure of is never an error, and only that."""

from __future__ import annotations

from pathlib import Path

import pytest

from rltui.check.findings import Finding
from rltui.check.run import check_file, settled
from rltui.check.script import check_script_text
from rltui.layout.presets import resolve


@pytest.mark.parametrize(
    ("code", "key", "unsure", "severity"),
    [
        ("M301", "roles.learner", ["roles.learner.micro_batch"], "note"),
        ("M301", "roles.learner", ["roles.rollout"], "error"),
        ("M303", "roles.rollout.memory_utilization", ["roles.rollout"], "note"),
        ("M303", "roles.rollout.memory_utilization", ["roles.learner.micro_batch"], "error"),
        ("M306", "roles.rollout.memory_utilization", ["roles.learner.offload"], "note"),
        ("B210", "lengths.pack", ["lengths.prompt"], "note"),
        ("B212", "train.prompts_per_step", ["roles.learner.zero_stage", "train.steps", "data.train"], "error"),
        ("P118", "roles.learner.zero_stage", ["roles.learner.zero_stage"], "note"),
        ("D508", "data.train", ["data.train"], "note"),
        ("D508", "roles.learner.model", ["data.train"], "error"),
        ("P101", "roles.rollout.engines", ["roles.rollout.memory_utilization"], "error"),
        ("E313", "lengths.response", ["roles.rollout.memory_utilization"], "error"),
        ("P101", "hardware.nodes", ["hardware"], "note"),
        ("P101", "hardware.nodes", [], "error"),
    ],
)
def test_an_error_about_what_is_not_sure_is_a_note(code: str, key: str, unsure: list[str], severity: str) -> None:
    finding = Finding(code=code, severity="error", message="so it is", key=key, fix=("train.steps=1",))
    found = settled(finding, unsure)
    assert found.severity == severity
    assert ("unknown" in found.message) == (severity == "note")
    assert bool(found.fix) == (severity == "error")


def test_a_warning_stays_one() -> None:
    finding = Finding(code="M302", severity="warning", message="tight", key="roles.learner")
    assert settled(finding, ["roles.learner"]) == finding


def test_what_the_user_says_is_sure(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(resolve("local/grpo-tiny").read_text() + "unsure: [train.steps]\n")
    assert [one.severity for one in check_file(path, ["train.steps=0"]).findings if one.code == "B201"] == ["error"]


def test_a_script_of_verl_saves_nothing_before_its_end_unless_it_says_so(tmp_path: Path) -> None:
    command = (
        "python3 -m verl.trainer.main_ppo trainer.nnodes=1 trainer.n_gpus_per_node=8 trainer.total_training_steps=50"
    )
    for word, number in (("", 1), (" trainer.save_freq=10", 5)):
        report = check_script_text(f"{command}{word}\n", tmp_path / "run.sh")
        assert report.arithmetic is not None
        assert report.arithmetic.checkpoints == number
        assert any("at the end" in line for line in report.arithmetic_lines) == (not word)
        assert any(finding.code == "B205" for finding in report.findings) == (not word)
