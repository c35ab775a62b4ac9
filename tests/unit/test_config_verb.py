"""``rltui config``: every setting with where it comes from, against the attempt before and another run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_compare import make_run

from rltui.cli.main import main
from rltui.layout.load import dump_layout, load_layout
from rltui.layout.origins import changed, origin_of, origins
from rltui.paths import run_root

UPPER = """\
layout: 1
base: ./below.yaml
name: upper
train:
  steps: 7
roles:
  rollout:
    engine_args: {max_num_seqs: 4}
"""


def layout_file(tmp_path: Path) -> Path:
    (tmp_path / "below.yaml").write_text(dump_layout(load_layout(_preset()).layout))
    path = tmp_path / "upper.yaml"
    path.write_text(UPPER)
    return path


def _preset() -> Path:
    from rltui.layout.presets import resolve

    return resolve("local/grpo-tiny")


def test_a_key_comes_from_a_file_its_base_an_override_or_nowhere(tmp_path: Path) -> None:
    path = layout_file(tmp_path)
    found = origins(load_layout(path, ["train.learning_rate=0.1", "roles.learner.gpus[0]=2"]))
    below = (tmp_path / "below.yaml").read_text().splitlines()
    assert found["train.steps"] == f"{path}:5"
    assert found["name"] == f"{path}:3"
    assert found["roles.rollout.engine_args.max_num_seqs"] == f"{path}:8"
    assert found["train.learning_rate"] == found["roles.learner.gpus"] == "override at launch"
    file, _, number = found["hardware.gpu"].rpartition(":")
    assert (file, below[int(number) - 1].strip()) == (f"{tmp_path}/below.yaml", "gpu: cpu")


def test_what_is_nowhere_is_a_default_unless_its_section_was_overridden(tmp_path: Path) -> None:
    found = origins(load_layout(_preset(), ["roles.rollout.engine_args={a: 1}"]))
    assert origin_of("slurm.qos", found) == "default"
    assert origin_of("train.weight_decay", found) == "default", "that its section has a line says nothing"
    assert origin_of("roles.rollout.engine_args.a", found) == "override at launch"
    later = changed(found, ["train.steps=9", "slurm.exclude=[n1]"], "fix, attempt 2")
    assert (later["train.steps"], later["slurm.exclude"]) == ("fix, attempt 2", "fix, attempt 2")
    assert later["name"] == found["name"]


@pytest.fixture(autouse=True)
def runs(own_folders: Path) -> None:
    make_run("grpo-tiny-aaaa", 4, 0.01)
    make_run("grpo-tiny-bbbb", 4, 0.01, "train.seed=5")
    attempt = run_root() / "grpo-tiny-aaaa/attempts/02"
    attempt.mkdir()
    loaded = load_layout(_preset(), ["train.steps=9"])
    attempt.joinpath("layout.yaml").write_text(dump_layout(loaded.layout))
    attempt.joinpath("job.json").write_text(json.dumps({"argv": ["python"], "uuid": "u"}))
    attempt.joinpath("end.json").write_text(json.dumps({"outcome": "finished", "exit_code": 0, "at": 99.0}))
    attempt.joinpath("origins.json").write_text(json.dumps({"schema": 1, "keys": origins(loaded)}))


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["config", "grpo-tiny-aaaa", "--json", *words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_newest_attempt_is_held_against_the_one_before(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys)
    assert (found["attempt"], found["against"], found["notes"]) == (2, "attempt 1", [])
    [steps] = [one for one in found["settings"] if one["differs"]]
    usual = load_layout(_preset()).layout.train.steps
    assert steps == {"key": "train.steps", "value": 9, "origin": "override at launch", "before": usual, "differs": True}
    by_key = {one["key"]: one["origin"] for one in found["settings"]}
    assert by_key["algorithm"].endswith("layouts/local/grpo-tiny.yaml:6")
    assert by_key["train.weight_decay"] == "default"


def test_an_attempt_of_an_older_rltui_says_that_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "--attempt", "1")
    assert (found["attempt"], found["against"]) == (1, "")
    assert "not written down" in found["notes"][0]
    assert {one["origin"] for one in found["settings"]} == {"not recorded"}
    assert main(["config", "grpo-tiny-aaaa", "--attempt", "7"]) == 2


def test_another_run_and_a_filter(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "--diff", "grpo-tiny-bbbb")
    assert found["against"] == "grpo-tiny-bbbb"
    assert {one["key"]: one["before"] for one in found["settings"]}["train.seed"] == 5
    assert all(one["differs"] for one in found["settings"])
    assert main(["config", "grpo-tiny-aaaa", "train.steps"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["KEY", "ATTEMPT", "2", "attempt", "1", "FROM"]
    assert out[1].split()[:2] == ["train.steps", "9"]
    assert len(out) == 2
