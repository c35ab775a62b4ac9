"""Differences of two layouts, and the JSON Schema that editors use."""

from __future__ import annotations

import json

import pytest
import yaml
from check_cases import GPU

from rltui.cli.main import main
from rltui.layout.diff import Difference, diff, setting_text
from rltui.layout.json_schema import json_schema
from rltui.layout.load import load_text
from rltui.layout.presets import preset_files


def test_only_differing_keys_are_named() -> None:
    a = load_text(GPU, "a").layout
    b = load_text(GPU, "b", ["train.steps=7", "roles.reference={}", "roles.learner.gpus=[4]"]).layout
    assert diff(a, a) == ()
    assert diff(a, b)[:2] == (
        Difference("roles.learner.gpus", [2, 2], [4]),
        Difference("train.steps", 100, 7),
    )
    assert {each.key for each in diff(a, b)[2:]} <= {
        f"roles.reference.{key}" for key in ("model", "pool", "precision", "zero_stage")
    }


def test_two_presets_and_overrides_can_be_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "verl-ppo/ppo-1x4-standard", "verl-ppo/ppo-1x4-split"]) == 0
    out = capsys.readouterr().out
    assert "roles.critic.pool" in out
    assert "train.steps" not in out
    assert main(["diff", "local/grpo-tiny", "train.steps=3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["differences"]) == (1, [{"key": "train.steps", "a": 2000, "b": 3}])
    assert main(["diff", "local/grpo-tiny", 'data.judge.prompt="one\\ntwo"']) == 0
    assert "one\\ntwo" in capsys.readouterr().out, "a value of several lines stays in its cell"
    assert main(["diff", "local/grpo-tiny"]) == 2
    assert "Name two layouts" in capsys.readouterr().err


def test_presets_are_valid_by_the_json_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json_schema())
    for name, path in preset_files():
        values = yaml.load(path.read_text(), Loader=yaml.BaseLoader) and yaml.safe_load(path.read_text())
        assert [error.message for error in validator.iter_errors(values)] == [], name
    assert not validator.is_valid({"layout": 1, "name": "x"})
    assert validator.is_valid({"base": "local/grpo-tiny", "train": {"steps": 3}})
    assert not validator.is_valid({"base": "local/grpo-tiny", "train": {"stepz": 3}})


def test_a_list_is_shown_as_a_layout_has_it() -> None:
    assert setting_text(("a=1", "b")) == "[a=1, b]"
    assert setting_text([]) == "[]"
    assert setting_text([2, True, None]) == "[2, true, –]"
