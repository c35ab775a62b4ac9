"""``make demo`` itself: in a real terminal with keys, and without one."""

import importlib.util
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from terminal import Terminal

from forks import server_of_session, write_forking_python
from rltui.onnode import processes

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.trainers, pytest.mark.slow]
ENGINE = "vllm" if importlib.util.find_spec("vllm") else "hf"
"""The demo in a terminal has the other one."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[dict[str, str]]:
    names = {"RLTUI_RUN_ROOT": "runs", "RLTUI_STATE_DIR": "state", "RLTUI_CACHE_DIR": "cache"}
    # words of a `make test` around this test, such as ARGS=-x, are not for the demo
    own = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKEOVERRIDES", "ARGS")}
    environment = {**own, **{name: str(tmp_path / folder) for name, folder in names.items()}}
    yield environment
    for job in tmp_path.glob("runs/*/attempts/*/job.json"):
        processes.end_all(json.loads(job.read_text())["uuid"], grace_s=0.5, exclude=())


def test_make_demo_without_a_terminal_learns_and_reports_in_lines(home: dict[str, str]) -> None:
    began = time.monotonic()
    done = subprocess.run(
        ["make", "demo", f"ENGINE={ENGINE}", "ARGS=--no-screen train.steps=40"],
        cwd=ROOT,
        env=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"running  step \d+/40", done.stderr)
    assert "finished: all steps done (step 40/40" in done.stderr
    lines = [json.loads(line) for line in next(Path(home["RLTUI_RUN_ROOT"]).glob("*/attempts/01/metrics.jsonl")).open()]
    rewards = [line["reward"] for line in lines]
    assert sum(rewards[:5]) / 5 <= 0.35
    assert sum(rewards[29:40]) / 11 >= 0.70
    assert max(line["parity_max_abs"] for line in lines) < 1e-4
    print(f"make demo ENGINE={ENGINE}, no screen: {time.monotonic() - began:.1f} s in all")


@pytest.mark.tmux
def test_make_demo_is_watched_killed_and_resubmitted_by_keys(home: dict[str, str], tmp_path: Path) -> None:
    write_forking_python(tmp_path / "python", server_of_session())
    home["RLTUI_TRAINER_PYTHON"] = str(tmp_path / "python")
    del home["RLTUI_CACHE_DIR"]  # the session's tiny model
    terminal = Terminal(f"cd {ROOT} && make demo", home)
    try:
        terminal.until("stage")
        terminal.until("▶training")
        assert "reward" in terminal.until("tok/s")
        terminal.keys("c")
        terminal.until("Cancel grpo-tiny")
        terminal.keys("y")
        terminal.until("cancelled by the user")
        terminal.keys("r")
        terminal.until("Resubmit grpo-tiny")
        terminal.keys("y")
        terminal.until("Attempt 2 of")
        terminal.until("▶training")
        terminal.keys("q")
        terminal.keys("q")
        screen = terminal.until("EXIT-0")
        assert "grpo-tiny" in screen  # it says which runs go on
        listed = subprocess.run(
            [".venv/bin/rltui", "ps", "--json"], cwd=ROOT, env=home, capture_output=True, text=True, check=True
        )
        (run,) = json.loads(listed.stdout)["runs"]
        assert run["attempt"] == 2
        assert run["state"] == "running"
        subprocess.run([".venv/bin/rltui", "cancel", run["run_id"], "--yes"], cwd=ROOT, env=home, check=True)
    finally:
        terminal.close()
