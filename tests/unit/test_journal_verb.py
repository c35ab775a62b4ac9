"""``rltui journal``: one line an action, out of what the journal's writers wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rltui.cli.main import main
from rltui.onnode.hands_off import STATE
from rltui.paths import state_dir
from rltui.runs.journal import Journal, actions

ABOUT = {"run": "grpo-1a2b", "cluster": "hpc"}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setenv("RLTUI_STATE_DIR", str(tmp_path))
    journal = Journal(state_dir())

    def entry(action: str, phase: str, **details: Any) -> None:
        journal.write(action, phase, **{**ABOUT, **details})

    return entry


def test_a_submission_is_one_action_with_its_job(write: Callable[..., None]) -> None:
    for phase in ("intent", "submitting"):
        write("submit", phase, attempt=1, uuid="u1")
    (begun,) = actions(Journal(state_dir()).entries())
    assert (begun.outcome, begun.took_s) == ("submitting", None)
    write("submit", "done", attempt=1, uuid="u1", job="77")
    write("submit", "recorded", attempt=1, uuid="u1")
    (one,) = actions(Journal(state_dir()).entries())
    assert (one.action, one.outcome, one.run, one.attempt, one.job) == ("submit", "done", "grpo-1a2b", 1, "77")
    assert one.took_s is not None
    assert one.by.startswith(f"{os.getpid()}@")


def test_a_change_of_a_live_run_has_its_words_and_the_outcome_of_its_attempt(write: Callable[..., None]) -> None:
    write("replace", "intent", attempt=1, overrides=["train.steps=9"], exclude=["n1"])
    write("cancel", "intent", attempt=1)
    write("cancel", "done", attempt=1)
    write("resubmit", "intent", attempt=2, uuid="u2")
    write("resubmit", "failed", attempt=2, uuid="u2", reason="sbatch: error: QOS")
    changed, cancelled = actions(Journal(state_dir()).entries())
    assert (changed.action, changed.attempt, changed.outcome) == ("resubmit", 2, "failed")
    assert changed.words == ("train.steps=9", "--exclude n1")
    assert changed.reason == "sbatch: error: QOS"
    assert (cancelled.action, cancelled.outcome) == ("cancel", "done")


def test_an_interrupted_change_stays_open_and_is_no_part_of_another_runs(write: Callable[..., None]) -> None:
    write("replace", "intent", attempt=1, overrides=["a=1"])
    write("resubmit", "intent", attempt=2, run="other")
    write("resubmit", "intent", attempt=2, cluster="another")
    write("submit", "done", attempt=3)
    write("resubmit", "intent", attempt=4)
    found = actions(Journal(state_dir()).entries())
    assert [(one.action, one.run, one.words) for one in found] == [
        ("replace", "grpo-1a2b", ("a=1",)),
        ("resubmit", "other", ()),
        ("resubmit", "grpo-1a2b", ()),
        ("submit", "grpo-1a2b", ()),
        ("resubmit", "grpo-1a2b", ()),
    ]


def test_each_switch_is_an_action_of_its_own(write: Callable[..., None]) -> None:
    write("hands-off", "done", on=True)
    write("hands-off", "done", on=False)
    assert [one.words for one in actions(Journal(state_dir()).entries())] == [("on",), ("off",)]


def test_what_hands_off_mode_did_is_printed_where_its_run_root_is_here(
    write: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RLTUI_RUN_ROOT", str(tmp_path / "local"))
    monkeypatch.setenv("RLTUI_CONFIG_DIR", str(tmp_path))
    (tmp_path / "clusters.yaml").write_text(
        f"near: {{scheduler: slurm, run_root: {tmp_path}/near}}\nfar: {{host: far, run_root: {tmp_path}/far}}\n"
    )
    write("hands-off", "done", on=True)
    for name in ("local", "near", "far"):
        told = {**ABOUT, "run": f"{name}-1a2b", "attempt": 1, "exclude": ["n1"]}
        Journal(tmp_path / name / STATE).write("hands-off", "done", **told, reason="attempt 2: n1 was lost")
    write("hands-off", "done", on=False)
    assert main(["journal"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[-1] for line in lines] == ["on", "lost", "lost", "off"]
    assert lines[1].split()[5:] == ["local-1a2b", "#1", "--exclude", "n1", "attempt", "2:", "n1", "was", "lost"]


def test_the_verb_prints_the_last_ones_of_a_run_and_no_control_characters(
    write: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2, 3):
        write("cancel", "intent", attempt=number)
        write("cancel", "failed", attempt=number, reason=f"no {number}\x1b[2J\nline")
    write("cancel", "intent", run="opd-1", attempt=1)
    assert main(["journal", "grpo", "--last", "2"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[5:7] for line in out.splitlines()[1:]] == [["grpo-1a2b", "#2"], ["grpo-1a2b", "#3"]]
    assert "\x1b" not in out
    assert main(["journal", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["outcome"] for one in told["actions"]] == ["failed", "failed", "failed", "intent"]
    assert main(["journal", "opd"]) == 0
    assert "not known" in capsys.readouterr().out


def test_nothing_done_and_wrong_numbers_are_said(
    write: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["journal"]) == 0
    assert "Nothing was done" in capsys.readouterr().err
    assert main(["journal", "--last", "-1"]) == 2
