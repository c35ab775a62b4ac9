"""A supervisor that is slow to start: it has started, or it never will, and whoever waits is told which."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rltui.onnode import rundir, supervise


def detach(attempt: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> int:
    """Start ``program`` in the supervisor's place, of which nobody waits any longer from the first look on."""
    (attempt / rundir.JOB).write_text(json.dumps({"uuid": "4f2a"}))
    python = attempt / "python"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    monkeypatch.setattr(supervise.sys, "executable", str(python))
    return supervise.detach(str(attempt), deadline_s=0.0)


def test_one_that_has_not_begun_in_time_never_will(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert detach(tmp_path, monkeypatch, "exec sleep 600") == 1
    assert "the supervisor did not start" in capsys.readouterr().err
    assert Path(rundir.lock_folder(str(tmp_path), "4f2a")).is_dir(), "who comes later finds it made, and ends"


def test_one_that_has_begun_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(rundir.lock_folder(str(tmp_path), "4f2a")).mkdir()
    assert detach(tmp_path, monkeypatch, f"sleep 0.3; echo '{{}}' > {tmp_path}/{rundir.SUPERVISOR}; exec sleep 1") == 0


def test_one_that_ends_at_once_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert detach(tmp_path, monkeypatch, "exit 3") == 1
