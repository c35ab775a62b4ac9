"""What the driver of a Slurm job makes of signals: a time limit, a preemption, a cancellation, somebody's wish."""

from __future__ import annotations

import errno
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from rltui.onnode import ray_agents, ray_nodes, rundir, slurm_job
from rltui.onnode.allocation import NODE_FAILURE, Allocation
from rltui.onnode.attempt_runner import AttemptRunner, Verdict
from rltui.onnode.script_resume import where_saved
from rltui.onnode.slurm_job import SlurmJob

if TYPE_CHECKING:
    from rltui.onnode.ray_head import RayHead


def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_s: float | None, lead_s: float = 600.0) -> SlurmJob:
    monkeypatch.setenv("PATH", str(tmp_path))  # no scontrol
    attempt = tmp_path / "attempts" / "01"
    attempt.mkdir(parents=True)
    rundir.write_json(str(attempt / "job.json"), {"uuid": "u", "deadlines_s": {"grace": 20}})
    end_at = None if left_s is None else time.time() + left_s
    return SlurmJob(str(attempt), Allocation(7, 0, ["nid1"], 4, end_at), lead_s, str(attempt / "slurm-7.out"))


@pytest.mark.parametrize(
    ("left_s", "outcome", "least_s", "most_s"),
    [
        (600.0, "time-limit", 550, 560),
        (660.0, "time-limit", 610, 620),  # Slurm may warn a minute early
        (20.0, "time-limit", 10, 10),
        (None, "time-limit", 550, 560),
        (5000.0, "cancelled", 600, 600),  # by hand, long before the end
    ],
)
def test_the_warning_gives_the_trainer_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_s: float | None, outcome: str, least_s: float, most_s: float
) -> None:
    job = driver(tmp_path, monkeypatch, left_s)
    job.on_warning()
    assert job.request is not None
    assert job.request.outcome == outcome
    assert least_s <= job.request.grace_s <= most_s
    assert not job.in_a_hurry()
    job.on_warning()
    job.on_cancel()
    assert job.request.outcome == outcome
    assert job.request.grace_s == 20


def test_a_job_without_a_limit_is_ended_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = driver(tmp_path, monkeypatch, None)
    monkeypatch.setattr(slurm_job, "shown", lambda _: "JobId=7 RunTime=00:09:00 TimeLimit=UNLIMITED EndTime=Unknown ")
    job.on_warning()
    assert job.request == ("cancelled", "asked to save and end by SIGUSR2", 600)


@pytest.fixture
def far_away() -> Iterator[None]:
    """Another time zone; C's library keeps one that it has read, and so all tests after this one would."""
    with pytest.MonkeyPatch.context() as there:
        there.setenv("TZ", "America/St_Johns")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_away")
@pytest.mark.parametrize(("requeue", "queued"), [("1", True), ("0", False)])
def test_who_leaves_for_another_job_in_time_saves_and_is_queued_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requeue: str, queued: bool
) -> None:
    """The signal before the time limit is also that of a preemption with a GraceTime (preempt_send_user_signal)."""
    job = driver(tmp_path, monkeypatch, 5000.0)
    end = f"$(/bin/date -d @{int(time.time()) + 300} +%Y-%m-%dT%H:%M:%S)"
    told = f"JobId=7 Requeue={requeue} EndTime={end} PreemptTime=2026-11-25T21:55:59 PreemptMode=REQUEUE"
    program = tmp_path / "scontrol"
    program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\necho "{told}"\n')
    program.chmod(0o755)
    job.on_warning()
    assert job.request is not None
    assert (job.request.outcome, job.request.reason) == ("cancelled", "preempted by Slurm for another job")
    assert 245 <= job.request.grace_s <= 256, "what Slurm leaves until the end of the GraceTime"
    assert (tmp_path / "asked").read_text() == "-o show job 7\n", "one question tells all"
    assert job.end_details()["slurm"] == "PREEMPTION"
    assert job.comes_again() == queued, "else hands-off mode decides"
    job.leave()
    assert ("requeue 7" in (tmp_path / "asked").read_text().splitlines()) == queued


@pytest.mark.parametrize("at_once", [True, False])
def test_a_preemption_that_leaves_no_time_is_no_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """Slurm may send its end while the driver still asks what the warning before it is about."""
    job = driver(tmp_path, monkeypatch, 5000.0)

    def asked(_: str) -> str:
        if at_once:
            job.on_cancel()
        return time.strftime("EndTime=%Y-%m-%dT%H:%M:%S", time.gmtime())

    monkeypatch.setattr(slurm_job, "shown", asked)
    words = "slurmstepd: error: *** JOB 7 ON nid1 CANCELLED AT 2026-11-25T21:34:23 DUE TO PREEMPTION ***\n"
    Path(job.output).write_text(words)
    job.on_warning()
    assert job.request is not None
    assert (job.request.outcome == "time-limit") != at_once
    if not at_once:
        job.on_cancel()
    assert (job.request.outcome, job.request.reason) == ("cancelled", "preempted by Slurm for another job")


@pytest.mark.parametrize(("time_of", "outcome"), [("2026-11-25T21:55:59", "cancelled"), ("None", "failed")])
def test_who_is_told_by_the_death_of_ray_alone_leaves_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time_of: str, outcome: str
) -> None:
    """A GraceTime without preempt_send_user_signal begins with SIGTERM for all steps, but not for the batch script."""
    job = driver(tmp_path, monkeypatch, 5000.0)
    monkeypatch.setattr(slurm_job, "shown", lambda _: f"JobId=7 Requeue=1 PreemptTime={time_of}")
    monkeypatch.setattr(AttemptRunner, "_attempt", lambda _: Verdict("failed", 1, "learner 0 died"))
    job.bad_nodes = {"nid1": "raylet gone"}
    verdict = job._attempt()
    assert verdict.outcome == outcome
    assert (job.end_details().get("slurm"), "bad_nodes" in job.end_details()) == (
        ("PREEMPTION", False) if outcome == "cancelled" else (None, True)
    )


@pytest.mark.parametrize(
    ("is_step", "late_s", "is_asked"),
    [(False, 25.0, False), (False, 35.0, True), (True, -5.0, False), (True, 5.0, True)],
)
def test_without_a_warning_the_clock_is_one_which_alone_tells_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_step: bool, late_s: float, is_asked: bool
) -> None:
    job = driver(tmp_path, monkeypatch, 900.0)
    job.is_step = is_step
    job.tick()
    assert job.request is None
    assert job.end_at is not None
    end_at = job.end_at = time.time() + 600.0 - late_s
    monkeypatch.setattr(time, "time", lambda: end_at - 600.0 + late_s)
    job.tick()
    assert (job.request is not None and job.request.outcome) == (is_asked and "time-limit")


@pytest.mark.parametrize(
    ("words", "outcome", "grace_s"),
    [
        (" DUE TO TIME LIMIT", "time-limit", 18.0),
        (" DUE TO PREEMPTION", "cancelled", 18.0),
        (" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "failed", 18.0),
        ("", "cancelled", 18.0),
        (None, "cancelled", 20.0),
    ],
)
def test_slurms_signal_is_told_from_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str | None, outcome: str, grace_s: float
) -> None:
    job = driver(tmp_path, monkeypatch, 5000.0)
    if words is not None:
        line = f"slurmstepd-nid1: error: *** JOB 7 ON nid1 CANCELLED AT 2026-11-20T10:00:00{words} ***\n"
        Path(job.output).write_text(line)
    job.on_cancel()
    assert job.request is not None
    assert (job.request.outcome, job.request.grace_s) == (outcome, grace_s)
    assert job.in_a_hurry() == (words is not None)
    assert job.tell(job.request).endswith("; there is no checkpoint yet")


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (Verdict("finished", 0, ""), 0),
        (Verdict("failed", 3, ""), 3),
        (Verdict("failed", -9, ""), 137),
        (Verdict("cancelled", None, ""), 143),
        (Verdict("failed", None, ""), 1),
    ],
)
def test_the_exit_code_is_the_trainers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: Verdict, code: int
) -> None:
    assert driver(tmp_path, monkeypatch, None).exit_code(verdict) == code


def test_a_job_that_leaves_says_where_its_own_script_or_layout_has_saved(tmp_path: Path) -> None:
    attempt, kept = tmp_path / "run/attempts/01", tmp_path / "kept"
    for folder in (attempt, kept, tmp_path / "run/checkpoints/step-000070"):
        folder.mkdir(parents=True)
    (tmp_path / "run/checkpoints/step-000070/COMPLETE").touch()
    assert where_saved(str(attempt)) == "its newest checkpoint is of step 70"
    marks = {"folder": r"global_step_(?P<step>\d+)", "tracker": "latest_checkpointed_iteration.txt"}
    told = {"checkpoints": str(kept), "dialect": {"checkpoints": marks}}
    (attempt / "script.json").write_text(json.dumps(told))
    assert where_saved(str(attempt)) == "there is no checkpoint yet"
    (kept / marks["tracker"]).write_text("40")
    assert where_saved(str(attempt)) == "its newest checkpoint is of step 40"
    (kept / marks["tracker"]).unlink()
    (kept / marks["tracker"]).mkdir()
    assert where_saved(str(attempt)) == "there is no checkpoint yet", "what cannot be read ends no driver"
    (attempt / "script.json").write_text(json.dumps({**told, "checkpoints": ""}))
    assert where_saved(str(attempt)) == "", "nobody can tell where it saves"


def test_a_full_disk_leaves_no_ray_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = driver(tmp_path, monkeypatch, 5000.0)
    job._slurm_cause, job.bad_nodes = NODE_FAILURE, {"nid1": NODE_FAILURE}
    rundir.write_json(str(tmp_path / "attempts" / "01" / "end.json"), {"outcome": "failed", "reason": "it died"})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    cleaned: list[bool] = []
    monkeypatch.setattr(rundir, "write_json", full)
    monkeypatch.setattr(AttemptRunner, "clean_up", lambda _: cleaned.append(True))
    job.clean_up()
    assert cleaned


def test_the_files_of_many_agents_are_not_read_at_each_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    monkeypatch.setattr(ray_agents, "start_step_on", lambda *_: subprocess.Popen(["/bin/sleep", "60"]))
    monkeypatch.setattr(ray_nodes.rundir, "read_json", lambda path: reads.append(path))
    nodes = [f"nid{number}" for number in range(1000)]
    head = cast("RayHead", SimpleNamespace(address="10.0.0.1:6379", folder=str(tmp_path)))
    agents = ray_agents.Agents(str(tmp_path), Allocation(7, 0, ["nid9999", *nodes], 4, None), head, [4])
    try:
        assert not any(agents.problem() for _ in range(5))
        assert len(reads) == 1000
    finally:
        agents._step.kill()
        agents._step.wait()
    agents.problem()
    assert len(reads) == 2000, "what an agent says of the end of its step"
