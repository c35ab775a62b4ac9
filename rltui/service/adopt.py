"""Adopting: a job or a process that rltui did not start becomes a run, without being touched."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rltui.cluster.jobs import JobSnapshot
from rltui.cluster.slurm.ids import MARK, first_task, waiting_tasks
from rltui.cluster.slurm.job_details import JobDetails
from rltui.cluster.slurm.records import write_duration
from rltui.cluster.slurm_cluster import SlurmCluster
from rltui.dialects.load import load_dialects, named, recognised
from rltui.dialects.schema import Dialect
from rltui.errors import ClusterError, RltuiError, UsageError
from rltui.layout.roles import Hardware
from rltui.layout.scalars import CPU
from rltui.layout.settings import Slurm
from rltui.onnode import processes, rundir
from rltui.onnode.preflight import capacity
from rltui.runs.code_snapshot import take_snapshot
from rltui.runs.directory import make_attempt, make_run, plan_attempt, stage_code, with_new_id, write_run
from rltui.runs.script_job import ScriptJob, script_files, script_job
from rltui.service.all_clusters import AllClusters, with_name
from rltui.service.cockpit import OpenJob
from rltui.service.context import Context
from rltui.service.script_asks import asked_by_lines
from rltui.service.scripts import checkpoint_folder, loads_modules, passes_words, run_name
from rltui.watch.snapshots import RunSummary

HEAD_BYTES = 1 << 16
"""How much of a log's beginning is read to see whose it is."""

OUTPUTS = (rundir.OUT_LOG, "err.log")


class Adopted(Struct, frozen=True, kw_only=True):
    """What was made of a job.

    Attributes:
        run_id: The run.
        cluster: Where it is.
        job_id: The scheduler's id; of a process its pid.
        dialect: How its output is read.
        notes: What is and is not known of it, a line each.
        path: The run's directory.
    """

    run_id: str
    cluster: str
    job_id: str
    dialect: str
    notes: tuple[str, ...]
    path: str


class _Source(Struct, frozen=True, kw_only=True):
    """What is adopted, whether a job or a process."""

    name: str
    identity: dict[str, Any]
    """What ``adopted.json`` says of it beside its logs."""
    logs: tuple[str, ...]
    text: str
    """Its script; of a process the command lines of its tree. What it is recognised by."""
    script: str = ""
    """Where the script was; empty: there is none that could be run again."""
    words: tuple[str, ...] = ()
    folder: str = ""
    environment: dict[str, str] = {}
    """What it was started with, as far as somebody gives that away."""
    hardware: Hardware
    slurm: Slurm = Slurm()


def open_jobs(context: Context) -> list[OpenJob]:
    """The user's jobs on a Slurm cluster that have not ended and are no runs, oldest first; by one question."""
    if not isinstance(context.cluster, SlurmCluster):
        return []
    rows, uid = context.cluster.slurm.queue(), context.cluster.slurm.uid()
    runs = {run.job_id for run in context.reader.read().runs if run.share is None}
    own = [job for owner, job in rows if owner == uid and not job.has_ended]
    found = [job for job in own if job.job_id not in runs and not job.comment.startswith(MARK)]
    return [OpenJob(cluster=context.name, job=job) for job in sorted(found, key=lambda job: job.submitted_at)]


def jobs_of(clusters: AllClusters) -> tuple[list[OpenJob], list[str]]:
    """The jobs of all Slurm clusters that are no runs, and why those that are away could not be asked."""
    found: list[OpenJob] = []
    problems: list[str] = []
    for name in clusters.names:
        if clusters.profiles.by_name[name].scheduler != "slurm":
            continue
        try:
            found += open_jobs(clusters.context(name))
        except ClusterError as error:
            problems.append(with_name(name, error.message))
    return found, problems


def adopt_job(context: Context, job_id: str, dialect: str = "", name: str = "") -> Adopted:
    """Make a run of the Slurm job ``job_id``; nothing is done to the job.

    Raises:
        UsageError: There is no such job, or the id is that of several.
        RltuiError: It is not the user's, has ended, or is a run already.
    """
    if not isinstance(context.cluster, SlurmCluster):
        raise UsageError(f"{context.name} has no Slurm, so it has no job {job_id}.", "`--pid P` adopts a process here.")
    details = _one_job(context, context.cluster, job_id)
    job, slurm = details.job, context.cluster.slurm
    text = slurm.batch_script(job.job_id.partition("_")[0])
    identity = {"job": {key: getattr(job, key) for key in ("job_id", "name", "comment", "submitted_at")}}
    source = _Source(
        name=name or job.name,
        identity=identity,
        logs=details.logs,
        text=text,
        script=(details.command or f"{details.folder}/script.sh") if text else "",
        words=details.words,
        folder=details.folder,
        hardware=_hardware(details.nodes, details.gpus, details.gpu or context.cluster.profile.gpu),
        slurm=_slurm(text, job),
    )
    return _adopted(context, source, job.job_id, dialect)


def _slurm(text: str, job: JobSnapshot) -> Slurm:
    """What the job was asked for with: the script's own lines, under what sbatch was told and the controller knows."""
    time_limit = write_duration(job.time_limit_s) if job.time_limit_s else None
    told = {"partition": job.partition, "account": job.account, "time": time_limit}
    return replace(asked_by_lines(text).slurm, **{name: value for name, value in told.items() if value})


def _one_job(context: Context, cluster: SlurmCluster, job_id: str) -> JobDetails:
    told = cluster.slurm.details(job_id)
    found = [one for one in told if not one.job.has_ended] or told[:1]
    if not found:
        raise UsageError(
            f"Slurm on {context.name} knows no job {job_id}.", f"`rltui ps --jobs --cluster {context.name}` lists them."
        )
    if len(found) > 1 or waiting_tasks(found[0].job.job_id):
        ids = ", ".join(first_task(one.job.job_id) for one in found[:4])
        raise UsageError(f"Job {job_id} is an array of several.", f"Name one of them, such as {ids}.")
    job = found[0].job
    if found[0].uid != cluster.slurm.uid():
        raise RltuiError(f"Job {job.job_id} belongs to {job.user or 'somebody else'}; only your own can be adopted.")
    if job.has_ended:
        logs = " ".join(found[0].logs)
        hint = f"`rltui why {logs}` reads its log." if logs else ""
        raise RltuiError(f"Job {job.job_id} has ended ({job.word or job.state}).", hint)
    for run in context.reader.read().runs:
        if run.job_id == job.job_id and run.end is None and run.share is None:
            raise RltuiError(f"Job {job.job_id} is the run {run.run_id} already.", f"`rltui show {run.run_id}`")
    if job.comment.startswith(MARK):
        raise RltuiError(
            f"Job {job.job_id} was submitted by rltui.", "Its run is in the run root of the profile that submitted it."
        )
    return found[0]


def adopt_process(context: Context, pid: int, dialect: str = "", name: str = "") -> Adopted:
    """Make a run of the process ``pid`` of this machine and those that it started; nothing is done to them.

    Raises:
        UsageError: There is no such process, it is no training of its own, or the cluster is not this machine.
        RltuiError: It is not the user's, or a run already.
    """
    if context.cluster.profile.scheduler != "local":
        raise UsageError(f"--pid names a process of this machine, not of {context.name}.", "Leave --cluster out.")
    tree = processes.tree(pid)
    if not tree:
        stat = processes.read_stat(pid)
        is_there = stat is not None and stat.state not in "ZX"
        raise UsageError(f"Process {pid} is not yours." if is_there else f"There is no process {pid} here.")
    if pid == 1 or os.getpid() in {one.pid for one in tree}:
        # to cancel a run ends all that its process has started
        raise UsageError(f"Process {pid} has started this shell, too.", "Name the training's own process.")
    started = tree[0].start_time
    for run in context.reader.read().runs:
        if run.job_id == str(pid) and run.end is None:
            raise RltuiError(f"Process {pid} is the run {run.run_id} already.", f"`rltui show {run.run_id}`")
    if processes.attempt_of(pid):
        raise RltuiError(f"Process {pid} was started by rltui.", "`rltui ps` lists its run.")
    command, folder = processes.words_of(pid), processes.folder_of(pid)
    environment: dict[str, str] = {}
    for one in tree:
        environment |= processes.environment_of(one.pid)
    identity = {"pid": pid, "start_time": started, "host": socket.gethostname()}
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    gpus = len([one for one in visible.split(",") if one.strip() not in ("", "-1")]) if visible is not None else None
    source = _Source(
        name=name or Path(next((word for word in command if word.endswith((".py", ".sh"))), command[0])).stem,
        identity=identity,
        logs=processes.output_files([one.pid for one in tree]),
        text="\n".join(" ".join(processes.words_of(one.pid)) for one in tree),
        folder=folder,
        environment=environment,
        hardware=_hardware(1, capacity().gpus if gpus is None else gpus, "GPU"),
    )
    return _adopted(context, source, str(pid), dialect)


def _adopted(context: Context, source: _Source, job_id: str, wanted: str) -> Adopted:
    """Make a run of ``source``, whose output is read as ``wanted`` says."""
    dialect, notes = _dialect(context, source, wanted)
    return with_new_id(run_name(source.name), partial(_directory, context, source, job_id, dialect, notes))


def _directory(
    context: Context, source: _Source, job_id: str, dialect: Dialect, notes: tuple[str, ...], run_id: str
) -> Adopted:
    """Make the run's directory; listed from its last file on, so half of it is never seen."""
    cluster, client = context.cluster, context.cluster.client
    code = stage_code(client, cluster.run_root, take_snapshot())
    attempt = plan_attempt(cluster.run_root, run_id, 1, code)
    path = Path(source.script or "script.sh")
    job = ScriptJob(
        name=run_name(source.name),
        dialect=dialect,
        script="script.sh" if source.script else "",
        source=source.script,
        words=source.words,
        folder=source.folder,
        passes_words=passes_words(source.text, path),
        checkpoints=checkpoint_folder(source.text, path, source.folder, source.words, dialect.checkpoints),
        loads_modules=loads_modules(source.text),
        hardware=source.hardware,
        slurm=source.slurm,
    )
    told = {"schema": rundir.SCHEMA, "logs": source.logs, "metrics": _metrics_file(dialect, source), **source.identity}
    note = {"schema": rundir.SCHEMA, "uuid": attempt.uuid, "job_id": job_id, "at": time.time()}
    records = {rundir.ADOPTED: told, rundir.SUBMITTED: note, rundir.JOB: script_job(job, attempt, cluster.python)}
    if "pid" in source.identity:
        records[rundir.SUPERVISOR] = {"schema": rundir.SCHEMA, "uuid": attempt.uuid, **source.identity}
    files = {name: msgspec.json.encode(record) for name, record in records.items()}
    files |= {name: data for name, data in script_files(job, source.text.encode()).items() if name}
    make_run(client, cluster.run_root, run_id, cluster.profile.run_root_group)
    make_attempt(client, attempt, files, cluster.profile.run_root_group)
    for log, link in zip(source.logs, OUTPUTS, strict=False):
        client.run(["ln", "-s", log, f"{attempt.path}/{link}"], timeout_s=20)
    write_run(client, cluster.run_root, run_id, job, cluster.name)
    about = {"run": run_id, "attempt": 1, "cluster": cluster.name, "path": attempt.path, "mark": attempt.uuid}
    context.journal.note("adopt", "done", **about, job=job_id)
    return Adopted(
        run_id=run_id,
        cluster=cluster.name,
        job_id=job_id,
        dialect=dialect.name,
        notes=notes,
        path=f"{cluster.run_root}/{run_id}",
    )


def _dialect(context: Context, source: _Source, wanted: str) -> tuple[Dialect, tuple[str, ...]]:
    """Whose run it is, by its script, else by the beginning of its log; and what is not known of it."""
    dialects, notes = load_dialects(), []
    if not source.logs:
        notes.append("its output goes to no file that rltui can read: no step, no metrics, no log")
    if not source.script:
        notes.append("nobody gives its script away, so it cannot be resubmitted")
    if wanted:
        return named(wanted, dialects), tuple(notes)
    found = recognised(source.text, dialects.values()) or recognised(_head(context, source.logs), dialects.values())
    if found:
        return found[0], (f"read as a run of {found[0].summary} (--dialect NAME says otherwise)", *notes)
    note = "no training system is recognised: steps are read where a line says 'step N', all else from the log"
    return dialects[rundir.GENERIC], (note, *notes)


def _metrics_file(dialect: Dialect, source: _Source) -> str:
    """The system's own file of metrics, where the run was told to write it; empty where it was not."""
    names = [name for name, value in dialect.export.items() if value and value == dialect.metrics.file]
    path = next((source.environment[name] for name in names if name in source.environment), "")
    return str(Path(source.folder, path)) if path else ""


def _head(context: Context, logs: Sequence[str]) -> str:
    try:
        return context.cluster.client.read(logs[0], 0, HEAD_BYTES).data.decode("utf-8", "replace") if logs else ""
    except ClusterError:
        return ""  # it has written nothing yet


def _hardware(nodes: int, gpus: int, gpu: str) -> Hardware:
    if not gpus:
        return Hardware(nodes=nodes, gpus_per_node=1, gpu=CPU)
    name = re.sub(r"[^\w.-]", "", gpu) or "GPU"
    return Hardware(nodes=nodes, gpus_per_node=-(-gpus // nodes), gpu=name)


def release_run(context: Context, run: RunSummary) -> str:
    """Forget an adopted run; its job goes on.

    Raises:
        RltuiError: It is none, or has attempts that rltui started.
    """
    context.require_own(run)
    if not run.is_adopted or run.last_attempt > 1:
        raise RltuiError(
            f"{run.run_id} was started by rltui, so it cannot be released.", f"`rltui cancel {run.run_id}` ends it."
        )
    about = {"run": run.run_id, "attempt": 1, "cluster": context.name, "job": run.job_id, "path": run.path}
    context.journal.write("release-run", "intent", **about)
    # logs are links, which rm takes away without following them
    done = context.cluster.client.run(["rm", "-rf", "--", run.path], timeout_s=60)
    if done.rc:
        raise RltuiError(f"{run.path} cannot be removed: {done.err.strip()[-200:]}")
    context.journal.note("release-run", "done", **about)
    what = "its job" if context.cluster.profile.scheduler == "slurm" else "its process"
    return f"{run.run_id} is forgotten; {what} {run.job_id} goes on." if run.is_live else f"{run.run_id} is forgotten."
