"""prime-rl's parts, each started by a command of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import counts, read

from rltui.importers.read import read_facts

TRAINER = '[model]\nname = "Qwen/Qwen3-0.6B"\n[optim]\nlr = 3e-6\n'
ORCHESTRATOR = "batch_size = 128\nrollouts_per_example = 16\nseq_len = 4096\n[sampling]\nmax_tokens = 1024\n"
INFERENCE = "[parallel]\ntp = 2\ndp = 2\n"


def _files(folder: Path) -> None:
    (folder / "train.toml").write_text(TRAINER)
    (folder / "orch.toml").write_text(ORCHESTRATOR)
    (folder / "infer.toml").write_text(INFERENCE)


@pytest.mark.parametrize(
    ("inference", "trainer", "expected"),
    [
        ("uv run inference", "uv run torchrun --nproc-per-node 4 src/prime_rl/trainer/rl/train.py", (8, 8, 4, 4, 2, 2)),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 uv run inference", "CUDA_VISIBLE_DEVICES=4 uv run trainer", (5, 5, 1, 4, 2, 2)),
        ("uv run inference", "torchrun --nproc-per-node $N -m prime_rl.trainer.rl.train", (None, None, None, 4, 2, 2)),
    ],
)
def test_each_part_takes_the_gpus_of_its_own_command(
    tmp_path: Path, inference: str, trainer: str, expected: tuple[int | None, ...]
) -> None:
    _files(tmp_path)
    script = f"{inference} @ infer.toml &\nuv run orchestrator @ orch.toml &\n{trainer} @ train.toml\n"
    assert counts(read(tmp_path, script)) == expected


def test_what_the_parts_set_stands_in_their_sections(tmp_path: Path) -> None:
    _files(tmp_path)
    script = (
        "uv run inference @ infer.toml --parallel.tp 1 &\nuv run orchestrator @ orch.toml --batch-size 256 &\n"
        "uv run trainer @ train.toml\n"
    )
    facts, _ = read_facts(script, tmp_path / "run.sh")
    assert (facts.model, facts.rollout_tp, facts.rollout_gpus) == ("Qwen/Qwen3-0.6B", 1, 2)
    settings = facts.settings
    assert (settings["train.prompts_per_step"], settings["train.samples_per_prompt"]) == (16, 16)
    assert (settings["train.learning_rate"], settings["lengths.response"]) == (3e-6, 1024)


def test_a_file_that_is_not_there_leaves_all_open(tmp_path: Path) -> None:
    script = "uv run orchestrator @ orch.toml &\nuv run trainer @ train.toml\n"
    facts, _ = read_facts(script, tmp_path / "run.sh")
    assert facts.dialect == "prime-rl"
    assert any("orch.toml, train.toml is not beside the script" in note for note in facts.notes)
