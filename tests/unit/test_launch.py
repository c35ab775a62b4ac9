"""What launching says where something is missing."""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import TYPE_CHECKING

import pytest

from rltui.cli.main import main
from rltui.errors import MissingExtraError
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.service import launch
from rltui.service.launch import require_modules

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("absent", "overrides", "said"),
    [
        ({"torch", "ray"}, [], ["The trainers need torch, ray,", "pip install 'rltui[trainers]'"]),
        ({"vllm"}, ["roles.rollout.engine=vllm"], ["The layout needs vllm", "roles.rollout.engine=hf"]),
        ({"peft"}, ["roles.learner.lora_rank=8"], ["The layout needs peft", "rltui[trainers]"]),
        ({"bitsandbytes"}, ["roles.learner.optimizer=adamw_8bit"], ["The layout needs bitsandbytes", "eight-bit"]),
    ],
)
def test_missing_extras_name_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, absent: set[str], overrides: list[str], said: list[str]
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: None if name in absent else real("json"))
    with pytest.raises(MissingExtraError) as caught:
        require_modules(load_layout(resolve("local/grpo-tiny"), overrides).layout)
    for words in said:
        assert words in str(caught.value)
    assert caught.value.exit_code == 2


def test_hf_layouts_do_not_need_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: None if name == "vllm" else real("json"))
    require_modules(load_layout(resolve("local/grpo-tiny")).layout)


def test_on_a_machine_a_set_up_line_that_fails_starts_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("RUN_ROOT", "STATE_DIR", "CACHE_DIR", "CONFIG_DIR"):
        monkeypatch.setenv(f"RLTUI_{name}", str(tmp_path / name.lower()))
    profile = f"box: {{scheduler: hosts, python: {sys.executable}, setup_lines: [no-such-module load x]}}\n"
    folder = tmp_path / "config_dir"
    folder.mkdir()
    (folder / "clusters.yaml").write_text(profile)
    assert main(["launch", "local/grpo-tiny", "--cluster", "box", "--unchecked", "--yes"]) == 1
    assert "The run could not be started: " in (said := capsys.readouterr().err)
    assert "no-such-module: command not found" in said
    assert main(["ps", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == []
