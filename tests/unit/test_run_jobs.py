"""The scheduler's word in the rows: new, old, and forgotten."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
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


class Files:
    """An attempt whose only file is its end."""

    def __init__(self, end: EndSnapshot) -> None:
        self.text = json.dumps({"bad_nodes": {"node3": "node failure"}, **msgspec.to_builtins(end)})

    def collect(self, *_: object) -> tuple[SimpleNamespace, ...]:
        return (SimpleNamespace(path="end.json", text=self.text),)

    def put(self, path: str, data: bytes) -> None:
        assert path.endswith("/attempts/01/end.json")
        self.text = data.decode()


def told_of_an_end(folder: Path, run: RunSummary, files: Files, job: JobSnapshot | None) -> tuple[RunSummary, bool]:
    """The run, and whether its job was asked for."""
    asked: list[str] = []

    def jobs(job_ids: Sequence[str]) -> JobsSnapshot:
        asked.extend(job_ids)
        return JobsSnapshot(jobs={"7": job} if job else {}, taken_at=NOW)

    cluster: Any = SimpleNamespace(profile=SimpleNamespace(scheduler="slurm"), client=files, jobs=jobs)
    at = replace(run, path="/runs/grpo-1a2b", end=msgspec.json.decode(files.text, type=EndSnapshot))
    [seen] = JobWords(cluster, LastRows(folder, "lab")).told(RunsSnapshot(runs=(at,), taken_at=NOW)).runs
    return seen, bool(asked)


@pytest.mark.parametrize(
    "job",
    [
        # the queue counts starts; the accounting does not, and has a record of the wait alone
        JobSnapshot(job_id="7", state="cancelled", word="CANCELLED", restarts=1, started_at=NOW - 5, ended_at=NOW - 5),
        JobSnapshot(job_id="7", state="cancelled", word="CANCELLED", ended_at=NOW - 5),
    ],
)
def test_a_run_cancelled_while_it_waited_for_its_next_start_is_no_longer_requeued(
    tmp_path: Path, job: JobSnapshot
) -> None:
    files = Files(EndSnapshot(outcome="failed", reason="node failure on node3", at=NOW - 60, slurm="NODE FAILURE"))
    words = "The job was cancelled. It waited for its next start after: node failure on node3"
    run = replace(RUN, state="failed", job_restart=0)
    for told_by in (job, job, None):  # at once, and for good
        seen, _ = told_of_an_end(tmp_path, replace(run, state="cancelled"), files, told_by)
        assert seen.end is not None
        assert (seen.state, seen.end.outcome, seen.end.reason) == ("cancelled", "cancelled", words)
    assert json.loads(files.text)["bad_nodes"] == {"node3": "node failure"}


def test_a_job_that_slurm_queued_again_is_asked_for_until_slurm_says_that_it_is_over(tmp_path: Path) -> None:
    files = Files(EndSnapshot(outcome="cancelled", reason="preempted", at=NOW - 4000, slurm="PREEMPTION"))
    run = replace(RUN, state="cancelled", job_restart=0)
    for _ in range(2):
        seen, asked = told_of_an_end(tmp_path, run, files, replace(WAITS, restarts=1))
        assert (seen.state, seen.end, asked) == ("queued", None, True)
    for _, is_asked in ((1, True), (2, False)):
        ended = JobSnapshot(job_id="7", state="cancelled", word="PREEMPTED", started_at=9.0, nodes=("node1",))
        seen, asked = told_of_an_end(tmp_path, run, files, ended)
        assert seen.end is not None
        assert (seen.state, seen.end.reason, asked) == ("cancelled", "preempted", is_asked)


def test_what_ended_long_ago_by_itself_is_not_asked_for(tmp_path: Path) -> None:
    files = Files(EndSnapshot(outcome="failed", reason="exit code 1", at=NOW - 4000))
    assert told_of_an_end(tmp_path, replace(RUN, state="failed"), files, None)[1] is False


@pytest.mark.parametrize(("job_state", "waited_s"), [("cancelled", 0.0), ("pending", 0.0), ("running", 700.0)])
def test_no_step_is_missed_of_a_job_that_does_not_run(tmp_path: Path, job_state: Any, waited_s: float) -> None:
    job = JobSnapshot(job_id="7", state=job_state, restarts=1 if job_state == "pending" else 0, ended_at=NOW)
    quiet = replace(TRAINS, no_step_s=700.0, job_restart=0)
    [run] = told(tmp_path, quiet, JobsSnapshot(jobs={"7": job}, taken_at=NOW)).runs
    assert run.no_step_s == waited_s
