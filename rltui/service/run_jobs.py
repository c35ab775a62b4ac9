"""Runs as their directories tell of them, and the scheduler's word on their jobs, put together.

Slurm's records of a job that it ended for a node name all nodes of the job; which one failed is in the run's files.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.cluster.relay_types import FileRange, RelayError
from rltui.errors import ClusterError
from rltui.onnode import rundir
from rltui.onnode.allocation import NOT_THE_RUNS
from rltui.onnode.lost_nodes import LOG, TAIL_BYTES, host_of, is_sampler_file, lost
from rltui.onnode.node_evidence import NODE_FAILURE
from rltui.runs.claims import write_end
from rltui.service.attempts import Ending
from rltui.watch.jobs import has_moved_on, in_words, job_facts, last_word, of_share
from rltui.watch.lines import decode, parse_object
from rltui.watch.run_facts import JobNote

if TYPE_CHECKING:
    from rltui.cluster.cluster import Cluster
    from rltui.cluster.facts import NodeFacts
    from rltui.cluster.jobs import JobSnapshot, JobsSnapshot
    from rltui.cluster.relay_client import RelayClient
    from rltui.service.last_rows import LastRows
    from rltui.watch.runs import RunsReader
    from rltui.watch.snapshots import EndSnapshot, RunsSnapshot, RunSummary


MAY_COME_BACK_S = 900.0
"""How long after any end an attempt's job is still asked for: somebody may have Slurm start it again."""

WAITS_LONGEST_S = 30 * 86400.0
"""The same after an end that was Slurm's own doing: its job may wait for days, until Slurm says that it is over."""

LAST_WORD_S = 120.0
"""How long a job that has ended may take to say so itself before the scheduler's word is written down for it."""

NODE_FAIL = "NODE_FAIL"
SETTLED_S = 60.0
"""How long after a job's end the last words of its nodes may still come in over a shared file system."""
GONE = frozenset({"down", "error", "fail", "failing"})
GONE_FLAGS = frozenset({"not_responding", "fail", "down"})


class JobWords:
    """What the scheduler of one cluster says of the jobs of its runs; where it is away, what it said last.

    Args:
        cluster: The cluster.
        last: The rows last seen, with the scheduler's words of then.
    """

    def __init__(self, cluster: Cluster, last: LastRows) -> None:
        self._cluster = cluster
        self._last = last
        self._failed_nodes: dict[str, tuple[str, ...]] = {}

    def told(self, snapshot: RunsSnapshot) -> RunsSnapshot:
        """``snapshot`` with the jobs of its runs, from one answer of the scheduler for all of them."""
        if self._cluster.profile.scheduler in ("local", "hosts"):
            return snapshot
        now = snapshot.taken_at
        wanted = {run.run_id: run for run in snapshot.runs if run.job_id and not run.through and _may_change(run, now)}
        if not wanted:
            return snapshot
        answer = self._cluster.jobs([run.job_id for run in wanted.values()])
        told = tuple(self._told(run, answer, now) if run.run_id in wanted else run for run in snapshot.runs)
        for before, run in zip(snapshot.runs, told, strict=True):
            # the next refresh writes it where this one cannot
            with contextlib.suppress(ClusterError):
                self._write_last_word(before.end, run, now)
        return structs.replace(snapshot, runs=told, scheduler_problem=self._problem(answer))

    def _told(self, run: RunSummary, answer: JobsSnapshot, now: float) -> RunSummary:
        job, as_of = answer.jobs.get(run.job_id), answer.taken_at if answer.problem else 0.0
        if job is None and answer.problem:
            job, as_of = self._remembered(run)
        if job is not None:
            job = structs.replace(job, run_id=run.run_id)
            if run.share is not None:
                job = of_share(job, run.share, run.stage.began("preflight"))
            job = with_failed_nodes(self._cluster.client, self._failed_nodes, run, job, now)
        if as_of and job is not None and _files_know_better(run, job):
            return structs.replace(run, job=job, job_as_of=as_of)
        return structs.replace(_with_job(run, job), job_as_of=as_of if job is not None else 0.0)

    def _remembered(self, run: RunSummary) -> tuple[JobSnapshot | None, float]:
        """What the scheduler last said of the run's job to any rltui here, and when."""
        kept = self._last.last()
        for one in kept.runs:
            if one.run_id == run.run_id and one.job is not None and one.job.job_id == run.job_id:
                return one.job, one.job_as_of or kept.taken_at
        return None, 0.0

    def _problem(self, answer: JobsSnapshot) -> str:
        if not answer.problem:
            return ""
        heard = answer.taken_at or _heard_at(self._last.last())
        age = f" (last heard {max(0, int(time.time() - heard)) // 60} min ago)" if heard else ""
        return f"{answer.problem.rstrip('.')}{age}; what the files of the runs say is of now"

    def _write_last_word(self, before: EndSnapshot | None, run: RunSummary, now: float) -> None:
        """Write down the end of a job that died without a word, or starts no more, before the scheduler forgets it."""
        job = run.job
        if job is None or run.job_as_of or not job.has_ended:
            return
        if before is not None:
            if _awaits_word(before, now) and (run.end != before or now - before.at > MAY_COME_BACK_S):
                _write_over(self._cluster.client, run)
            return
        # slurmctld forgets a job MinJobAge after its end (300 s by default); without accounting nobody knows it then
        speaks_itself = not run.is_adopted
        if speaks_itself and (job.state == "completed" or now - job.ended_at < LAST_WORD_S):
            return
        write_last_word(self._cluster.client, run, job)


def _heard_at(kept: RunsSnapshot) -> float:
    """When the scheduler last spoke: rows that were kept while it was silent hold an older word of its."""
    return max((run.job_as_of for run in kept.runs), default=0.0) if kept.scheduler_problem else kept.taken_at


def _may_change(run: RunSummary, now: float) -> bool:
    if run.end is None or _awaits_word(run.end, now):
        return True
    return run.end.outcome != "finished" and now - run.end.at < MAY_COME_BACK_S


def _awaits_word(end: EndSnapshot, now: float) -> bool:
    """Whether Slurm ended it and has not said yet that the job does not start again."""
    return end.slurm in NOT_THE_RUNS and not end.over and now - end.at < WAITS_LONGEST_S


def _files_know_better(run: RunSummary, job: JobSnapshot) -> bool:
    """Whether the files are of a start that an old word of the scheduler does not know of yet."""
    is_next = run.job_restart is not None and job.restarts > run.job_restart
    has_begun = run.end is not None or run.state not in ("queued", "unknown")
    return not job.has_ended and has_begun and not is_next


def _with_job(run: RunSummary, job: JobSnapshot | None) -> RunSummary:
    if job is None:
        # asked for but not told of: it was submitted, so it waits or runs until somebody says otherwise
        return structs.replace(run, state="queued") if run.state == "unknown" and run.end is None else run
    if run.held_back is not None and run.held_back.attempt == run.attempt:
        job = structs.replace(job, held_back=run.held_back.words)
    facts = job_facts(run.stage, run.end, job, run.job_restart, is_adopted=run.is_adopted)
    end = run.end
    if end is not None and facts.state in ("queued", "starting"):
        end = None
    elif end is not None and not end.over and job.has_ended and has_moved_on(job, run.job_restart):
        end = _ended_waiting(end, job)
    waited_s = run.no_step_s if facts.state == "running" else 0.0  # what is over or waits is to do no steps
    return structs.replace(run, state=facts.state, job=job, scheduler_says=in_words(facts), end=end, no_step_s=waited_s)


def _goes_on(run: RunSummary, job: JobSnapshot) -> bool:
    """Whether the files are of a start after which Slurm queued the job again."""
    return run.job_restart is not None and job.restarts > run.job_restart


def _ended_waiting(before: EndSnapshot, job: JobSnapshot) -> EndSnapshot:
    """The end of a run whose ``job`` waited for its next start after ``before``, and then ended without one."""
    last = last_word(job)
    words = f"{last.reason} It waited for its next start after: {before.reason}"
    return structs.replace(before, outcome=last.outcome, reason=words, at=last.at, over=True)


def _write_over(client: RelayClient, run: RunSummary) -> None:
    """Note in the end of the run's attempt that its job does not start again, and how the run ended if it waited."""
    attempt = rundir.attempt_folder(run.path, run.attempt)
    [said] = [parse_object(file.text or "") for file in client.collect(attempt, [rundir.END])] or [None]
    if said is not None and run.end is not None:
        now = {"outcome": run.end.outcome, "reason": run.end.reason, "at": run.end.at, "over": True}
        client.put(f"{attempt}/{rundir.END}", json.dumps({**said, **now}).encode())


def write_last_word(client: RelayClient, run: RunSummary, job: JobSnapshot) -> None:
    """Write the scheduler's word on the ended ``job`` as the end of the attempt that ``run`` is at; one there stays.

    Raises:
        ClusterError: It cannot be written.
    """
    end = last_word(job, is_adopted=run.is_adopted)
    path = rundir.attempt_folder(run.path, run.attempt)
    write_end(client, path, end.outcome, end.reason, end.at or None)


def with_failed_nodes(
    client: RelayClient, found: dict[str, tuple[str, ...]], run: RunSummary, job: JobSnapshot, now: float
) -> JobSnapshot:
    """``job`` with the nodes that failed under it, where it ended for that and evidence names them.

    Args:
        client: The relay of the run's cluster.
        found: What was found before, by the attempt's directory (and start); what is found now comes into it.
        run: The run, at the attempt of that job.
        job: The scheduler's word on it.
        now: The cluster's clock, epoch seconds.
    """
    attempt = rundir.attempt_folder(run.path, run.attempt)
    if job.state == "pending" and _goes_on(run, job):
        start = f"{attempt} {job.restarts}"
        if start not in found:
            found[start] = _failed_before(client, attempt)
        return structs.replace(job, failed_nodes=found[start])
    if job.word != NODE_FAIL:
        return job
    from rltui.service.bad_nodes import record_lost

    known = found.get(attempt)
    if known is None:
        known = lost_nodes(client, attempt, job.nodes)
        settled = now - job.ended_at > SETTLED_S
        if settled and not known:
            known = down_now(client, job.nodes)
        if settled or known:
            found[attempt] = known
        record_lost(client, run, structs.replace(job, failed_nodes=known))
    return structs.replace(job, failed_nodes=known)


def _failed_before(client: RelayClient, attempt: str) -> tuple[str, ...]:
    """Nodes that failed under the start before the one that waits: by its last word, else those that are down.

    Slurm's record of the job is of the next start already.
    """
    try:
        files = {file.path: file.text or "" for file in client.collect(attempt, [rundir.END, rundir.SLURM])}
    except ClusterError:
        return ()
    end, start = decode(files.get(rundir.END, ""), Ending), decode(files.get(rundir.SLURM, ""), JobNote)
    blamed = end.bad_nodes.items() if end is not None else ()
    named = tuple(node for node, why in blamed if why.startswith(NODE_FAILURE))
    return named or down_now(client, start.nodes if start is not None else ())


def lost_nodes(client: RelayClient, attempt: str, nodes: Sequence[str]) -> tuple[str, ...]:
    """Those of the job's ``nodes`` that were lost, by the attempt's files; empty where they do not tell."""
    try:
        names = [entry.name for entry in client.list(attempt) if is_sampler_file(entry.name)]
        ranges = [FileRange(f"{attempt}/{name}", None, TAIL_BYTES) for name in (LOG, *names)]
        log, *answers = (b"" if isinstance(one, RelayError) else one.data for one in client.read_many(ranges))
    except ClusterError:
        return ()
    return tuple(lost(log.decode("utf-8", "replace"), dict(zip(map(host_of, names), answers, strict=True)), nodes))


def down_among(nodes: Sequence[str], facts: Sequence[NodeFacts]) -> tuple[str, ...]:
    """Those of a job's ``nodes`` that are down, or do not answer Slurm; none where all are, as in a maintenance."""
    down = {one.name for one in facts if one.state in GONE or GONE_FLAGS.intersection(one.flags)}
    found = tuple(node for node in nodes if node in down)
    return found if len(found) < len(nodes) or len(nodes) == 1 else ()


def down_now(client: RelayClient, nodes: Sequence[str]) -> tuple[str, ...]:
    """Those of a job's ``nodes`` that are down at this moment; none where Slurm does not say."""
    from rltui.cluster.gather_facts import node_facts

    try:
        return down_among(nodes, node_facts(client)) if nodes else ()
    except ClusterError:
        return ()


EVERY_S = 4.0
"""How often the new lines of all adopted jobs are read while a screen is open, by one process for all."""
TIMEOUT_S = 30.0


class CatchUp:
    """Reads on, before a list of runs is made."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._read_at: float | None = None
        self._attempts: tuple[str, ...] = ()
        self._code = ""

    def caught_up(self, reader: RunsReader) -> RunsSnapshot:
        """The runs, with what adopted jobs have said until now."""
        if self._attempts and self._is_due():
            self._read()
        snapshot = reader.read()
        before, adopted = self._attempts, [run for run in snapshot.runs if _may_say_more(run, snapshot.taken_at)]
        self._attempts = tuple(rundir.attempt_folder(run.path, run.attempt) for run in adopted)
        self._code = code_of(self._cluster, adopted[0]) if adopted else ""
        is_gone = any(run.state == "lost" and run.end is None for run in adopted)
        if snapshot.problem or not (is_gone or set(self._attempts) - set(before)):
            return snapshot
        self._read()
        return reader.read()

    def _is_due(self) -> bool:
        return self._read_at is None or time.monotonic() - self._read_at >= EVERY_S

    def _read(self) -> None:
        argv = [self._cluster.python, "-m", "rltui.onnode.script_catch_up", *self._attempts]
        with suppress(ClusterError):  # the reader says that the cluster is away
            self._cluster.client.run(argv, env={"PYTHONPATH": self._code}, timeout_s=TIMEOUT_S)
        self._read_at = time.monotonic()


def code_of(cluster: Cluster, run: RunSummary) -> str:
    """Where rltui's code is on ``cluster``: this one's, or the one that ``run`` was adopted with."""
    return str(Path(rundir.__file__).parents[2]) if cluster.profile.scheduler == "local" else f"{run.path}/code"


def _may_say_more(run: RunSummary, now: float) -> bool:
    """Whether it is an adopted job that may have said something since: also between the last look and its end."""
    return run.is_adopted and (run.end is None or now - run.end.at < MAY_COME_BACK_S)
