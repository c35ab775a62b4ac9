"""``rltui export``: the run's own trainers do it where the run's files are, or the command is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from watch_support import attempt_of

from rltui.cli import export as verb
from rltui.cli.main import main
from rltui.layout.load import dump_layout, load_layout
from rltui.layout.presets import resolve
from trainers.export import _draft_of

RUN = "grpo-tiny-1a2b"

EXPORTER = """
import pathlib, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2] + ["only"]))
target = pathlib.Path(words["--to"])
if target.exists():
    print("is there already", file=sys.stderr)
    sys.exit(1)
target.mkdir(parents=True)
(target / "asked").write_text(
    words["--checkpoint"] + " " + words.get("--precision", "-") + (" adapter" if "--adapter" in words else "")
)
"""


@pytest.fixture
def run(tmp_path: Path, own_folders: Path) -> Path:
    """A finished run of this machine: checkpoints of steps 10 and 20, the latter torn, and stand-ins for trainers."""
    attempt = attempt_of(RUN)
    folder = attempt.parents[1]
    attempt.joinpath("layout.yaml").write_text(dump_layout(load_layout(resolve("local/grpo-tiny")).layout))
    attempt.joinpath("end.json").write_text(json.dumps({"outcome": "finished", "exit_code": 0, "at": 2.0}))
    trainers = tmp_path / "code" / "trainers"
    trainers.mkdir(parents=True)
    trainers.joinpath("__init__.py").touch()
    trainers.joinpath("export.py").write_text(EXPORTER)
    job = {"argv": [sys.executable, "-m", "trainers.grpo"], "code": str(tmp_path / "code")}
    attempt.joinpath("job.json").write_text(json.dumps(job))
    for step in (10, 20):
        (folder / "checkpoints" / f"step-{step:06d}").mkdir(parents=True)
    (folder / "checkpoints" / "step-000010" / "COMPLETE").write_text("{}")
    return folder


def test_the_newest_complete_checkpoint_goes_into_the_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", RUN, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"schema": 1, "run_id": RUN, "step": 10, "path": f"{run}/export/step-000010"}
    assert (run / "export" / "step-000010" / "asked").read_text() == f"{run}/checkpoints/step-000010 -"
    assert main(["export", RUN]) == 1


def test_folder_and_precision_are_the_users(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "mine"
    assert main(["export", RUN, "--to", str(target), "--precision", "bf16"]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    assert (target / "asked").read_text().endswith(" bf16")


def test_the_adapter_alone_goes_beside_the_model(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", RUN, "--adapter"]) == 0
    assert capsys.readouterr().out == f"{run}/export/step-000010-adapter\n"
    assert (run / "export" / "step-000010-adapter" / "asked").read_text().endswith(" - adapter")


def test_a_torn_checkpoint_is_not_exported(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", RUN, "--step", "20"]) == 2
    assert "no complete checkpoint of step 20; its newest is of step 10" in capsys.readouterr().err
    (run / "checkpoints" / "step-000010" / "COMPLETE").unlink()
    assert main(["export", RUN]) == 2
    assert "no complete checkpoint yet" in capsys.readouterr().err


def test_elsewhere_the_command_is_told(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verb, "LOCAL", "another machine")
    assert main(["export", RUN]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"-m trainers.export --checkpoint {run}/checkpoints/step-000010 --to {run}/export/step-000010" in said
    assert not (run / "export").exists()


def test_of_two_exports_to_one_folder_one_is_refused_and_what_a_killed_one_left_is_gone(tmp_path: Path) -> None:
    target = tmp_path / "model"
    left = tmp_path / ".exporting-model" / "half" / "weights"
    left.parent.mkdir(parents=True)
    left.write_text("of one that was killed")
    with _draft_of(target) as draft:
        assert not list(draft.iterdir())
        draft.joinpath("config.json").write_text("{}")
        with pytest.raises(ValueError, match=r"another export into .*model is under way"), _draft_of(target):
            pass
        draft.rename(target)
    assert [file.name for file in target.iterdir()] == ["config.json"], "the second one has touched nothing"
    with pytest.raises(ValueError, match="is there already"), _draft_of(target):
        pass
