"""A run on a scheduler: its files and the scheduler's word, put together."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from rltui.cluster.jobs import JobSnapshot, JobState
from rltui.onnode.rundir import OUTCOMES, STAGES
from rltui.watch.jobs import ENDINGS, job_facts
from rltui.watch.snapshots import EndSnapshot, RunState, StageSnapshot

FINISHED = EndSnapshot(outcome="finished", exit_code=0, reason="all steps are done")
TRAINING = StageSnapshot(stage="training", step=3, steps=10)


def job(state: JobState, **values: object) -> JobSnapshot:
    return JobSnapshot(job_id="7", state=state, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stage", "end", "snapshot", "state"),
    [
        (None, None, None, "unknown"),
        ("training", None, None, "running"),
        ("submitted", None, job("pending", reason="Priority"), "queued"),
        ("submitted", None, job("running"), "starting"),
        (None, None, job("running"), "starting"),
        ("preflight", None, job("running"), "starting"),
        ("loading", None, job("running"), "starting"),
        ("training", None, job("running"), "running"),
        ("saving", None, job("suspended"), "running"),
        ("ended", None, job("running"), "stopping"),
        ("training", None, job("completing"), "stopping"),
        ("training", None, job("failed", word="NODE_FAIL"), "failed"),
        ("training", None, job("cancelled", word="CANCELLED"), "cancelled"),
        ("training", None, job("completed", word="COMPLETED"), "unknown"),
        ("training", None, job("unknown"), "unknown"),
        ("training", None, job("pending", reason="BeginTime", restarts=1), "queued"),
        ("ended", "finished", job("running"), "finished"),
        ("ended", "finished", job("completed", word="COMPLETED"), "finished"),
        ("ended", "failed", job("failed", word="FAILED"), "failed"),
        ("ended", "cancelled", job("unknown"), "cancelled"),
        ("ended", "lost", None, "lost"),
        ("ended", "time-limit", job("completed"), "failed"),
        ("ended", "failed", job("pending", reason="BeginTime", restarts=1), "queued"),
        ("training", None, job("pending", word="PENDING"), "running"),  # a word that is some seconds old: Ray's
        ("ended", "failed", job("pending", word="PENDING"), "failed"),
    ],
)
def test_states_are_folded(stage: str | None, end: str | None, snapshot: JobSnapshot | None, state: RunState) -> None:
    said = StageSnapshot(stage=stage) if stage else None
    assert job_facts(said, EndSnapshot(outcome=end) if end else None, snapshot).state == state


@pytest.mark.parametrize(
    ("start", "restarts", "end", "state"),
    [(0, 0, None, "running"), (0, 0, "failed", "failed"), (0, 1, "failed", "queued"), (1, 1, None, "running")],
)
def test_a_run_that_began_after_slurm_was_asked_does_not_wait(
    start: int, restarts: int, end: str | None, state: RunState
) -> None:
    said = EndSnapshot(outcome=end) if end else None
    assert job_facts(TRAINING, said, job("pending", reason="Priority", restarts=restarts), start).state == state


def test_a_job_of_ray_ended_as_ray_says() -> None:
    facts = job_facts(None, None, job("failed", word="FAILED", exit_code=1, ending="Job failed: no such module."))
    assert (facts.state, facts.sentence) == ("failed", "Ray says: Job failed: no such module.")


def test_a_start_that_is_over_says_nothing_of_the_next() -> None:
    assert job_facts(TRAINING, FINISHED, job("running", restarts=1), start=0).state == "starting"
    assert job_facts(TRAINING, None, job("running", restarts=1), start=0).state == "starting"
    assert job_facts(TRAINING, None, job("running", restarts=1), start=1).state == "running"
    assert job_facts(TRAINING, FINISHED, job("completed", restarts=1), start=1).state == "finished"
    # the accounting counts no restarts
    assert job_facts(TRAINING, FINISHED, job("completed", restarts=0), start=1).state == "finished"


def test_a_job_that_waits_says_why_and_what_to_do() -> None:
    facts = job_facts(None, None, job("pending", reason="PartitionTimeLimit"))
    assert (facts.state, facts.starts_by_itself) == ("queued", False)
    assert "time limit" in facts.sentence
    assert facts.next_step
    again = job_facts(None, None, job("pending", reason="BeginTime", restarts=2))
    assert again.sentence.startswith("Requeued 2×. ")


def test_an_end_without_a_word_of_the_run_is_told_in_slurms() -> None:
    lost = job_facts(TRAINING, None, job("failed", word="NODE_FAIL"))
    assert "node" in lost.sentence.lower()
    assert "Exclude" in lost.next_step
    assert "slurm-7.out" in job_facts(None, None, job("failed", word="FAILED")).next_step
    assert "exit code is 7" in job_facts(None, None, job("failed", word="FAILED", exit_code=7)).sentence
    assert "signal 9" in job_facts(None, None, job("failed", word="FAILED", exit_code=0, signal=9)).sentence
    assert "MELTED" in job_facts(None, None, job("failed", word="MELTED")).sentence


def test_a_job_that_never_ran_a_line_says_why() -> None:
    refused = job_facts(None, None, job("failed", word="FAILED", reason="BadConstraints", exit_code=0, signal=1))
    assert refused.sentence == "Slurm never started the job: No nodes fit what it asks for."
    assert "folder" in job_facts(None, None, job("failed", word="FAILED", signal=53, nodes=("n1",))).sentence


def test_every_end_of_slurm_has_a_sentence() -> None:
    for word, ending in ENDINGS.items():
        state: JobState = "cancelled" if word in ("CANCELLED", "REVOKED") else "failed"
        assert job_facts(None, None, job(state, word=word)).sentence.startswith(ending.sentence)


def test_every_combination_has_a_state_and_never_a_false_end() -> None:
    stages = [None, *(StageSnapshot(stage=name) for name in STAGES)]
    ends = [None, *(EndSnapshot(outcome=outcome) for outcome in OUTCOMES)]
    for stage, end, state in product(stages, ends, get_args(JobState)):
        folded = job_facts(stage, end, job(state)).state
        assert folded in get_args(RunState)
        if end is None and state in ("pending", "running", "suspended", "completing"):
            assert folded in ("queued", "starting", "running", "stopping")
