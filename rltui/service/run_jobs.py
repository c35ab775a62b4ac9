"""Runs as their directories tell of them, and the scheduler's word on their jobs, put together."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.errors import ClusterError
from rltui.onnode import rundir
from rltui.runs.claims import write_end
from rltui.service.failed_nodes import with_failed_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rltui.cluster.jobs import JobSnapshot
    from rltui.service.context import Context
    from rltui.watch.snapshots import RunsSnapshot, RunSummary

MAY_COME_BACK_S = 900.0
"""How long after its end an attempt's job is still asked for: Slurm may start it again under the same id."""

LAST_WORD_S = 120.0
"""How long a job that has ended may take to say so itself before the scheduler's word is written down for it."""


def with_jobs(context: Context, snapshot: RunsSnapshot) -> RunsSnapshot:
    """``snapshot`` with the jobs of its runs, from one answer of the scheduler for all of them."""
    if context.cluster.profile.scheduler == "local":
        return snapshot
    wanted = [run for run in snapshot.runs if run.job_id and not run.through and _may_change(run, snapshot.taken_at)]
    if not wanted:
        return snapshot
    answer = context.cluster.jobs([run.job_id for run in wanted])
    ids = {run.run_id for run in wanted}
    now = snapshot.taken_at
    runs = tuple(_told(context, run, answer.jobs, now) if run.run_id in ids else run for run in snapshot.runs)
    for run in runs:
        _write_last_word(context, run, snapshot.taken_at)
    return structs.replace(snapshot, runs=runs, problem=snapshot.problem or answer.problem)


def _may_change(run: RunSummary, now: float) -> bool:
    if run.end is None:
        return True
    return run.end.outcome != "finished" and now - run.end.at < MAY_COME_BACK_S


def _told(context: Context, run: RunSummary, jobs: Mapping[str, JobSnapshot], now: float) -> RunSummary:
    job = jobs.get(run.job_id)
    return _with_job(run, with_failed_nodes(context, run, job, now) if job is not None else None)


def _with_job(run: RunSummary, job: JobSnapshot | None) -> RunSummary:
    from rltui.watch.jobs import in_words, job_facts

    if job is None:
        # asked for but not told of: it was submitted, so it waits or runs until somebody says otherwise
        return structs.replace(run, state="queued") if run.state == "unknown" and run.end is None else run
    facts = job_facts(run.stage, run.end, job, run.job_restart)
    moved_on = run.end is not None and facts.state in ("queued", "starting")
    return structs.replace(
        run,
        state=facts.state,
        job=job,
        scheduler_says=in_words(facts),
        end=None if moved_on else run.end,
    )


def _write_last_word(context: Context, run: RunSummary, now: float) -> None:
    """Write down the end of a job that died without a word, before the scheduler forgets it."""
    job = run.job
    if job is None or run.end is not None or job.state not in ("failed", "cancelled"):
        return
    if now - job.ended_at < LAST_WORD_S:
        return
    # the next refresh writes it where this one cannot
    with contextlib.suppress(ClusterError):
        write_last_word(context, run, job)


def write_last_word(context: Context, run: RunSummary, job: JobSnapshot) -> None:
    """Write the scheduler's word on the ended ``job`` as the end of the attempt that ``run`` is at; one there stays.

    Raises:
        ClusterError: It cannot be written.
    """
    from rltui.watch.jobs import last_word

    end = last_word(job)
    path = rundir.attempt_folder(run.path, run.attempt)
    write_end(context.cluster.client, path, end.outcome, end.reason, end.at or None)
