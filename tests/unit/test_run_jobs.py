"""The scheduler's word in the rows: new, old, and forgotten."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from rltui.cluster.jobs import JobSnapshot, JobsSnapshot
from rltui.service.last_rows import LastRows
from rltui.service.run_jobs import JobWords
from rltui.watch.snapshots import EndSnapshot, RunsSnapshot, RunSummary, StageSnapshot

NOW = 5000.0
AWAY = "Slurm does not answer: Unable to contact slurm controller."
RUN = RunSummary(
    run_id="grpo-1a2b", name="grpo", algorithm="grpo", cluster="lab", state="unknown", attempt=1, created_at=50.0,
    nodes=1, gpus_per_node=8, gpu="H100", job_id="7",
)  # fmt: skip
WAITS = JobSnapshot(job_id="7", state="pending", reason="Priority")
TRAINS = replace(RUN, state="running", stage=StageSnapshot(stage="training", step=3, steps=9))


def told(folder: Path, run: RunSummary, answer: JobsSnapshot, before: RunSummary | None = None) -> RunsSnapshot:
    rows = LastRows(folder, "lab")
    if before is not None:
        rows.keep(RunsSnapshot(runs=(before,), taken_at=4000.0))
    empty = SimpleNamespace(collect=lambda *_: ())  # an attempt without files
    cluster: Any = SimpleNamespace(profile=SimpleNamespace(scheduler="slurm"), client=empty, jobs=lambda _: answer)
    return JobWords(cluster, rows).told(RunsSnapshot(runs=(run,), taken_at=NOW))


def test_a_fresh_word_has_no_age(tmp_path: Path) -> None:
    snapshot = told(tmp_path, RUN, JobsSnapshot(jobs={"7": WAITS}, taken_at=NOW))
    [run] = snapshot.runs
    assert (run.state, run.job_as_of, snapshot.scheduler_problem) == ("queued", 0, "")
    assert run.job == replace(WAITS, run_id=RUN.run_id)


def test_what_the_scheduler_said_last_stays_with_its_age(tmp_path: Path) -> None:
    snapshot = told(tmp_path, RUN, JobsSnapshot(jobs={"7": WAITS}, taken_at=4500.0, problem=AWAY))
    [run] = snapshot.runs
    assert (run.state, run.job_as_of, snapshot.problem) == ("queued", 4500.0, "")
    assert snapshot.scheduler_problem.startswith(f"{AWAY[:-1]} (last heard ")


def test_rows_kept_while_the_scheduler_was_silent_are_no_word_of_its(tmp_path: Path) -> None:
    rows = LastRows(tmp_path, "lab")
    silent = replace(RUN, state="queued", job=WAITS, job_as_of=time.time() - 610)
    rows.keep(RunsSnapshot(runs=(silent, TRAINS), taken_at=time.time(), scheduler_problem=AWAY))
    cluster: Any = SimpleNamespace(
        profile=SimpleNamespace(scheduler="slurm"), client=SimpleNamespace(), jobs=lambda _: JobsSnapshot(problem=AWAY)
    )
    snapshot = JobWords(cluster, rows).told(RunsSnapshot(runs=(RUN,), taken_at=time.time()))
    assert "(last heard 10 min ago)" in snapshot.scheduler_problem


def test_a_new_rltui_knows_what_an_earlier_one_was_told(tmp_path: Path) -> None:
    snapshot = told(tmp_path, RUN, JobsSnapshot(problem=AWAY), replace(RUN, state="queued", job=WAITS))
    [run] = snapshot.runs
    assert (run.state, run.job_as_of) == ("queued", 4000.0)
    older = replace(RUN, state="queued", job=WAITS, job_as_of=3000.0)
    assert told(tmp_path, RUN, JobsSnapshot(problem=AWAY), older).runs[0].job_as_of == 3000.0
    assert told(tmp_path / "none", RUN, JobsSnapshot(problem=AWAY)).runs[0].state == "queued"


@pytest.mark.parametrize(
    ("run", "job", "state"),
    [
        # it has started since: the files are newer than the scheduler's word
        (TRAINS, WAITS, "running"),
        (replace(TRAINS, job_restart=1), replace(WAITS, restarts=1), "running"),
        # these files are of the start before the one that it waits for
        (replace(TRAINS, job_restart=0), replace(WAITS, restarts=1), "queued"),
        (replace(TRAINS, state="finished", end=EndSnapshot(outcome="finished", at=NOW - 9)), WAITS, "running"),
    ],
)
def test_files_that_are_newer_than_an_old_word_win(
    tmp_path: Path, run: RunSummary, job: JobSnapshot, state: str
) -> None:
    [seen] = told(tmp_path, run, JobsSnapshot(jobs={"7": job}, taken_at=4500.0, problem=AWAY)).runs
    assert seen.state == ("finished" if run.end else state)


def test_a_run_cancelled_while_it_waited_for_its_next_start_is_no_longer_requeued(tmp_path: Path) -> None:
    end = EndSnapshot(outcome="cancelled", reason="requeued: Slurm starts the job again", at=NOW - 60)
    run = replace(RUN, state="cancelled", end=end, job_restart=0)
    job = JobSnapshot(job_id="7", state="cancelled", word="CANCELLED", restarts=1, ended_at=NOW - 5)
    [seen] = told(tmp_path, run, JobsSnapshot(jobs={"7": job}, taken_at=NOW)).runs
    assert seen.end is not None
    assert (seen.state, seen.end.reason) == ("cancelled", "The job was cancelled.")


@pytest.mark.parametrize(("job_state", "waited_s"), [("cancelled", 0.0), ("pending", 0.0), ("running", 700.0)])
def test_no_step_is_missed_of_a_job_that_does_not_run(tmp_path: Path, job_state: Any, waited_s: float) -> None:
    job = JobSnapshot(job_id="7", state=job_state, restarts=1 if job_state == "pending" else 0, ended_at=NOW)
    quiet = replace(TRAINS, no_step_s=700.0, job_restart=0)
    [run] = told(tmp_path, quiet, JobsSnapshot(jobs={"7": job}, taken_at=NOW)).runs
    assert run.no_step_s == waited_s
