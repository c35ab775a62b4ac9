"""Reading on in what adopted jobs say: from where the last look ended, whatever became of the log meanwhile."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rltui.dialects.load import load_dialects
from rltui.onnode import rundir, script_catch_up
from rltui.onnode.script_catch_up import catch_up, main


def adopted(folder: Path, **more: Any) -> Path:
    """An attempt whose job writes to ``folder/log``."""
    attempt = folder / "run/attempts/01"
    attempt.mkdir(parents=True)
    dialect = msgspec.to_builtins(load_dialects()["generic"])
    (attempt / rundir.SCRIPT_RUN).write_text(json.dumps({"dialect": dialect}))
    (attempt / rundir.ADOPTED).write_text(json.dumps({"logs": [str(folder / "log")], "metrics": "", **more}))
    return attempt


def steps(attempt: Path) -> list[int]:
    path = attempt / rundir.METRICS
    return [json.loads(line)["step"] for line in path.read_text().splitlines()] if path.exists() else []


def test_each_look_reads_what_is_new_and_a_torn_line_waits(tmp_path: Path) -> None:
    attempt, log = adopted(tmp_path), tmp_path / "log"
    assert catch_up(str(attempt))  # there is no log yet
    log.write_text("step 1/9 loss: 0.5\nstep 2/9 lo")
    catch_up(str(attempt))
    with log.open("a") as stream:
        stream.write("ss: 0.4\nstep 3/9 loss: 0.3\n")
    catch_up(str(attempt))
    catch_up(str(attempt))
    with log.open("a") as stream:
        stream.write("step 4/9 loss: 0.2\n")
    catch_up(str(attempt))
    assert steps(attempt)[:3] == [1, 2, 3]
    assert len(steps(attempt)) == len(set(steps(attempt)))
    stage = json.loads((attempt / rundir.STAGE).read_text())
    assert (stage["stage"], stage["step"], stage["steps"]) == ("training", 4, 9)


def test_a_log_that_begins_again_is_read_from_its_start(tmp_path: Path) -> None:
    attempt, log = adopted(tmp_path), tmp_path / "log"
    log.write_text("step 7/9 loss: 0.5\nstep 8/9 loss: 0.5\n")
    catch_up(str(attempt))
    os.replace(_written(tmp_path / "next", "step 8/9 loss: 0.1\nstep 9/9 loss: 0.1\nend\n"), log)
    catch_up(str(attempt))
    catch_up(str(attempt))
    assert json.loads((attempt / rundir.STAGE).read_text())["step"] == 9


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_of_two_who_look_at_once_one_reads(tmp_path: Path) -> None:
    attempt = adopted(tmp_path)
    with (attempt / script_catch_up.LOCK).open("w") as lock:
        script_catch_up.fcntl.flock(lock, script_catch_up.fcntl.LOCK_EX)
        assert not catch_up(str(attempt))


def test_a_disk_without_locks_keeps_nobody_from_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: Any, how: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(script_catch_up.fcntl, "flock", refuse)
    attempt = adopted(tmp_path)
    (tmp_path / "log").write_text("step 1/9 loss: 0.5\n")
    assert catch_up(str(attempt))
    assert steps(attempt) == [1]


def test_a_long_log_is_read_by_and_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_catch_up, "MOST_BYTES", 100)
    monkeypatch.setattr("rltui.onnode.line_reader.CHUNK", 100)
    attempt, log = adopted(tmp_path), tmp_path / "log"
    log.write_text("".join(f"step {step}/50 loss: 0.5\n" for step in range(1, 51)))
    looks = 0
    while len(steps(attempt)) < 49:
        catch_up(str(attempt))
        assert json.loads((attempt / rundir.STAGE).read_text())["step"] == 50, "the newest is told at once"
        looks += 1
        assert looks < 20
    assert looks > 5
    assert steps(attempt)[:49] == list(range(1, 50))


def test_a_process_that_is_gone_ends_the_run_by_what_it_said_last(tmp_path: Path) -> None:
    gone = {"pid": 4_194_300, "start_time": "1", "host": script_catch_up.socket.gethostname()}
    for name, text, more, outcome in (
        ("done", "step 9/9 loss: 0.1\n", {}, "finished"),
        ("lost", "step 3/9 loss: 0.1\n", {}, "lost"),
        ("told", "step 3/9 loss: 0.1\n", {"cancelled_at": 1.0}, "cancelled"),
    ):
        (tmp_path / name).mkdir()
        attempt = adopted(tmp_path / name, **gone, **more)
        (tmp_path / name / "log").write_text(text)
        catch_up(str(attempt))
        assert json.loads((attempt / rundir.END).read_text())["outcome"] == outcome


def test_a_broken_attempt_holds_up_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    broken, whole = adopted(tmp_path / "a", logs=3), adopted(tmp_path / "b")
    (tmp_path / "b/log").write_text("step 1/2 loss: 0.1\nstep 2/2 loss: 0.1\n")
    assert main([str(broken), str(whole)]) == 1
    assert str(broken) in capsys.readouterr().err
    assert json.loads((whole / rundir.STAGE).read_text())["step"] == 2
