"""Plug-ins, really installed: the example's verb and tab, and ones that fail without doing harm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rltui.plugins import PANELS, Plugin
from rltui.tui.glyphs import ASCII
from rltui.tui.views import parts
from rltui.watch.snapshots import RunSnapshot, RunSummary, StageSnapshot

ROOT = Path(__file__).parents[2]
BROKEN = """
def add_arguments(parser):
    pass

def run(options):
    raise ValueError("no such luck")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, installed by pip into a folder, and a broken package beside it."""
    pytest.importorskip("setuptools", reason="the example is built with it")
    source = shutil.copytree(ROOT / "examples/plugin", tmp_path_factory.mktemp("source") / "plugin")
    target = tmp_path_factory.mktemp("plugins")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True, timeout=120)
    (target / "broken_verb.py").write_text(BROKEN)
    about = target / "broken-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[rltui.verbs]\nbroken = broken_verb\n[rltui.panels]\nAway = not_there_at_all:panel\n"
    )
    return target


def rltui(installed: Path, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    names = ("CONFIG_DIR", "STATE_DIR", "CACHE_DIR", "RUN_ROOT")
    environment = {**os.environ, **{f"RLTUI_{name}": str(tmp_path / name) for name in names}}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(installed)])
    return subprocess.run(
        [sys.executable, "-m", "rltui", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_example_s_verb_is_one_of_rltui_s(installed: Path, tmp_path: Path) -> None:
    done = rltui(installed, tmp_path, "best", "--last", "3")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    shown = rltui(installed, tmp_path, "best", "--help").stdout
    assert "usage: rltui best" in shown
    assert "The runs with the highest reward." in shown


def test_one_that_raises_is_said_to_be_its_own_error(installed: Path, tmp_path: Path) -> None:
    done = rltui(installed, tmp_path, "broken")
    assert done.returncode == 1
    assert "The plug-in broken of broken 1.0 failed: ValueError: no such luck" in done.stderr
    assert "Traceback" not in done.stderr


def test_info_lists_them_with_what_is_wrong(installed: Path, tmp_path: Path) -> None:
    told = json.loads(rltui(installed, tmp_path, "info", "--json").stdout)["plugins"]
    found = {one["name"]: one for one in told if one["package"] in ("rltui-example", "broken")}
    assert set(found) == {"best", "Step rate", "broken", "Away"}
    assert found["best"]["problem"] == found["Step rate"]["problem"] == ""
    assert "not_there_at_all" in found["Away"]["problem"]
    assert "rltui.panels Step rate of rltui-example 0.1" in rltui(installed, tmp_path, "info").stdout


class Entry:
    """An entry point to a function that is there already."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def load(self) -> Callable[[Any], Any]:
        return self._function


def shown(function: Callable[[Any], Any]) -> str:
    run = RunSummary(
        run_id="a-1", name="a", algorithm="grpo", cluster="local", state="running", attempt=1, created_at=0.0, nodes=1,
        gpus_per_node=1, gpu="cpu", stage=StageSnapshot(step=3, steps=10),
    )  # fmt: skip
    plugin = Plugin("Rate", PANELS, "mine", "1.0", Entry(function))  # type: ignore[arg-type]
    return "\n".join(one.plain for one in parts.panel(plugin, RunSnapshot(summary=run), 60, ASCII))


def test_a_tab_shows_lines_and_its_own_error_in_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples/plugin"))
    from rltui_example.step_rate import panel as example

    assert "a-1 is running, at step 3 of 10" in shown(example)
    assert "\x1b" not in shown(lambda _: ["a \x1b[31mred line"])
    assert "plug-in Rate of mine 1.0 failed: ZeroDivisionError" in shown(lambda _: 1 / 0)


def test_nothing_is_scanned_for_what_needs_no_plug_in() -> None:
    said = "main(['explain', 'P105']); print('importlib.metadata' in sys.modules)"
    code = f"import sys; from rltui.cli.main import main; {said}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT
    )
    assert done.stdout.splitlines()[-1] == "False"
