"""What the driver of an attempt makes of its trainer's end, and of what goes wrong beside it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rltui.onnode import hands_off, rundir
from rltui.onnode.allocation_step import CancelFile
from rltui.onnode.attempt_runner import AttemptRunner, Request, Verdict


class Runner(AttemptRunner):
    """Trains for a moment, without a Ray."""

    wish: Request | None = None

    def tick(self) -> None:
        self.request = self.wish
        raise OSError(errno.EIO, "a disk is away")

    def verdict(self) -> Verdict:
        self.environment = dict(os.environ)
        return self._train()


def runner(run: Path, command: str) -> Runner:
    attempt = run / "attempts/01"
    attempt.mkdir(parents=True)
    job = {"uuid": "u", "argv": ["sh", "-c", command], "deadlines_s": {"grace": 20}, "ray": None}
    rundir.write_json(str(attempt / rundir.JOB), job)
    return Runner(str(attempt))


def test_what_only_looks_after_a_run_never_ends_it(tmp_path: Path) -> None:
    assert runner(tmp_path, "sleep 0.5").verdict() == Verdict("finished", 0, "all steps done")


def test_a_disk_that_is_away_asks_for_no_end(tmp_path: Path) -> None:
    asked = CancelFile(str(tmp_path / "away"))
    assert not asked.is_there()


@pytest.mark.parametrize(("is_script", "outcome"), [(False, "finished"), (True, "time-limit")])
def test_a_trainer_that_was_done_when_it_was_to_end_has_finished(tmp_path: Path, is_script: bool, outcome: str) -> None:
    made = runner(tmp_path, "trap '' TERM; sleep 0.7")
    made.wish = Request("time-limit", "the time limit comes near", 20.0)
    if is_script:  # many a script ends with 0 when it was told to
        rundir.write_json(os.path.join(made.attempt, rundir.SCRIPT_RUN), {})
    assert made.verdict().outcome == outcome


def test_an_end_is_written_where_there_is_no_room_for_its_event(tmp_path: Path) -> None:
    (tmp_path / rundir.EVENTS).mkdir()  # cannot be written, whatever room there is
    assert rundir.write_end(str(tmp_path), "failed", 1, "the disk is full")
    assert not rundir.write_end(str(tmp_path), "lost", None, "later")
    assert (rundir.read_json(str(tmp_path / rundir.END)) or {})["reason"] == "the disk is full"


def test_where_nothing_can_decide_how_a_run_goes_on_that_is_said(tmp_path: Path) -> None:
    made = runner(tmp_path, "true")
    assert hands_off.decide(made.attempt) is None, "the mode is off"
    rundir.write_json(str(tmp_path / rundir.HANDS_OFF), {"on": True})
    Path(made.attempt, "hands-off.log").mkdir()
    assert hands_off.decide(made.attempt) is None
    assert "what decides cannot be started: " in Path(made.attempt, rundir.EVENTS).read_text()
