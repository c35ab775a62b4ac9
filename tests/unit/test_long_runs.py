"""Runs whose files are longer than what one look reads: what is printed of them is of their end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from watch_support import append, attempt_of, write_json

import rltui.api
from rltui.cli.main import main
from rltui.watch import lines

STEPS = 900


@pytest.fixture(autouse=True)
def long_run(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look reads less than a tenth of its steps and events."""
    monkeypatch.setattr(lines, "STEP_BYTES", 1 << 10)
    attempt = attempt_of("grpo-1")
    write_json(attempt / "stage.json", {"stage": "training", "history": [{"stage": "training", "at": 1.0}]})
    write_json(attempt / "end.json", {"outcome": "finished", "exit_code": 0, "at": 2.0})
    append(attempt / "metrics.jsonl", *({"step": step, "time": 1.0 + step, "reward": step} for step in range(STEPS)))
    append(attempt / "events.jsonl", *({"time": 1.0 + one, "kind": "x", "text": f"{one}"} for one in range(STEPS)))


@pytest.mark.parametrize(("verb", "key"), [("metrics", ""), ("show", "run")])
def test_the_newest_step_is_told(verb: str, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "grpo-1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    metrics = told[key]["metrics"] if key else told
    assert (metrics["steps"][-1], metrics["latest"]["reward"]) == (STEPS - 1, STEPS - 1.0)


def test_the_newest_event_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", "grpo-1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"{STEPS - 1}")


def test_python_is_given_all_of_it() -> None:
    with rltui.api.open() as session:
        assert session.run("grpo-1").snapshot().metrics.steps[-1] == STEPS - 1
