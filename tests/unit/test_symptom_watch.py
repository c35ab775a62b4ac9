"""The looks at a run's numbers on its node: what they leave behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rltui.onnode import rundir, symptom_watch
from rltui.onnode.processes import read_stat
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path


def test_a_look_that_is_over_leaves_no_zombie_until_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / rundir.METRICS).write_text("{}\n")
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\n")
    python.chmod(0o755)
    monkeypatch.setattr(symptom_watch.sys, "executable", str(python))
    watch = symptom_watch.SymptomWatch(str(tmp_path))
    monkeypatch.setattr(symptom_watch, "EVERY_S", 0.0)
    watch.tick({})
    pid = int(eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "a look"))
    eventually(lambda: (stat := read_stat(pid)) is not None and stat.state == "Z", "the end of the look")
    monkeypatch.setattr(symptom_watch, "EVERY_S", 3600.0)
    watch.tick({})
    stat = read_stat(pid)
    assert stat is None or stat.state != "Z"
