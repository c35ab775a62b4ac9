"""Submitting exactly once: the journal first, the directory next, the scheduler last.

Whatever happens in between (a broken link, kill -9, a power cut), what is on disk tells whether the scheduler may have
been asked: ``recover`` then looks, and nobody ever asks a second time for the same mark.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rltui.cluster.cluster import Attempt, Cluster, SubmitRefusedError
from rltui.cluster.jobs import AllocationShare
from rltui.cluster.profile import outer_python
from rltui.cluster.relay_client import RelayClient
from rltui.errors import ClusterError, RltuiError
from rltui.layout.load import dump_layout
from rltui.onnode import rundir
from rltui.runs.claims import note_submitted, withdraw
from rltui.runs.code_snapshot import MOST_BYTES, own_code, take_snapshot
from rltui.runs.directory import (
    held,
    job,
    make_attempt,
    make_run,
    plan_attempt,
    stage_code,
    with_new_id,
    write_run,
)
from rltui.runs.script_job import ScriptJob, Work, script_files, script_job
from rltui.service.allocations import start_in
from rltui.service.context import Context


class Launched(Struct, frozen=True, kw_only=True):
    """What a launch made: the run, its attempt, and the job that it is."""

    run_id: str
    attempt: int
    job_id: str
    cluster: str
    path: str
    start: str = ""
    """Where an attempt goes on that is not the run's first, in words."""
    partition: str = ""
    """Where it was submitted to; empty where that is left to the scheduler, or there is none."""
    nodes: tuple[str, ...] = ()
    """Its nodes in the allocation ``job_id``; empty where the job is its own."""


def submit_attempt(
    context: Context,
    run_id: str,
    number: int,
    work: Work,
    *,
    text: bytes = b"",
    action: str = "submit",
    after_job: str = "",
    hold_s: float = 0.0,
    before: str = "",
    sweep: str = "",
    origins: Mapping[str, str] | None = None,
    share: AllocationShare | None = None,
) -> Launched:
    """Make attempt ``number`` of ``run_id`` (attempt 1 makes the run) and hand it to the scheduler, once.

    Args:
        context: Where.
        run_id: The run.
        number: The attempt's number in it.
        work: What the attempt is to do: a layout for the bundled trainers, or another system's script.
        text: The script, byte for byte.
        action: What the journal calls it.
        after_job: Id of a job that must have ended before.
        hold_s: How long the scheduler holds it back; see ``Cluster.submit``.
        before: Directory of the attempt that it goes on from, whose own code it takes where that is not at hand.
        sweep: What all runs of the run's sweep have in common.
        origins: Where each setting comes from.
        share: What it gets of an allocation that is there; None: a job is submitted.

    Raises:
        ClaimedError: Another rltui made that attempt a moment ago.
        SubmitUnknownError: The answer was lost; ``recover`` finds out.
        RltuiError: The journal or the run root cannot be written, or the scheduler refused: nothing was submitted.
    """
    cluster, root = context.cluster, context.cluster.run_root
    attempt = plan_attempt(root, run_id, number, stage_code(cluster.client, root, take_snapshot()))
    files = attempt_files(cluster, work, attempt, after_job, text, before, share) | _origins_file(origins)
    about = _about(cluster.name, attempt)
    context.journal.write(action, "intent", **about, sha256=_digest(files))
    try:
        _make(cluster, attempt, work, files, sweep)
    except RltuiError as error:
        _failed(context, action, attempt, error)
        raise
    submit = partial(cluster.submit, attempt, after_job, hold_s)
    ask = partial(start_in, context, attempt, share, work) if share else submit
    job_id = _handed_over(context, action, attempt, ask)
    recorded = _noted(cluster.client, attempt, job_id)
    context.journal.note(action, "done", **about, job=job_id, recorded=recorded)
    return Launched(
        run_id=run_id,
        attempt=number,
        job_id=job_id,
        cluster=cluster.name,
        path=f"{root}/{run_id}",
        partition="" if share else work.slurm.partition or cluster.profile.partition,
        nodes=share.nodes if share else (),
    )


def _handed_over(context: Context, action: str, attempt: Attempt, ask: Callable[[], str]) -> str:
    """The scheduler's id of the attempt for which it is asked, once; what becomes of it otherwise is written down."""
    context.journal.write(action, "submitting", **_about(context.cluster.name, attempt))
    try:
        return ask()
    except SubmitRefusedError as error:
        _failed(context, action, attempt, error)
        raise
    except BaseException as error:
        about = _about(context.cluster.name, attempt)  # without this entry the submission is unknown all the same
        context.journal.note(action, "unknown", **about, reason=str(error)[:500])
        raise


def submit_new(
    context: Context,
    work: Work,
    *,
    text: bytes = b"",
    after_job: str = "",
    share: AllocationShare | None = None,
    sweep: str = "",
    origins: Mapping[str, str] | None = None,
) -> Launched:
    """Make a new run of ``work`` and submit its first attempt; see ``submit_attempt``."""
    submit = partial(submit_attempt, context, text=text, after_job=after_job, share=share, sweep=sweep, origins=origins)
    return with_new_id(work.name, lambda run_id: submit(run_id, 1, work))


def attempt_files(
    cluster: Cluster,
    work: Work,
    attempt: Attempt,
    after_job: str = "",
    text: bytes = b"",
    before: str = "",
    share: AllocationShare | None = None,
) -> dict[str, bytes]:
    """The files that an attempt begins with, by name.

    Raises:
        RltuiError: A value of layout or profile cannot stand in a job script.
    """
    is_slurm = cluster.profile.scheduler == "slurm"
    if isinstance(work, ScriptJob):
        python = outer_python(work.slurm, cluster.profile) if is_slurm else cluster.python
        told, files = script_job(work, attempt, python), script_files(work, text)
    else:
        told = job(work, attempt, cluster.profile.python if is_slurm else cluster.python)
        files = {rundir.LAYOUT: dump_layout(work).encode()}
        if archive := own_code(work, Path()) or _own_code_of(cluster.client, before):
            files[rundir.OWN_CODE] = archive
    if after_job and attempt.number > 1:  # a link of a chain, which looks back at the run's attempts first
        told["after_job"] = after_job
    if share is not None:
        told["allocation"] = msgspec.to_builtins(share)
    if notify := cluster.profile.notify.for_nodes():
        told["notify"] = notify
    told["held"] = held(work.hardware)
    files[rundir.JOB] = msgspec.json.encode(told)
    if is_slurm:
        from rltui.runs.script import render_script

        files[rundir.SCRIPT] = render_script(work, cluster.profile, attempt, share).encode()
    return files


def _origins_file(origins: Mapping[str, str] | None) -> dict[str, bytes]:
    told = {"schema": rundir.SCHEMA, "keys": dict(origins or {})}
    return {rundir.ORIGINS: msgspec.json.encode(told)} if origins else {}


def _own_code_of(client: RelayClient, attempt: str) -> bytes:
    """The user's package that an attempt carries; empty where it has none, or there is no such attempt."""
    if not attempt or not any(entry.name == rundir.OWN_CODE for entry in client.list(attempt)):
        return b""
    return client.read(f"{attempt}/{rundir.OWN_CODE}", 0, MOST_BYTES).data


def _make(cluster: Cluster, attempt: Attempt, work: Work, files: dict[str, bytes], sweep: str = "") -> None:
    client, root, group = cluster.client, cluster.run_root, cluster.profile.run_root_group
    if attempt.number == 1:
        make_run(client, root, attempt.run_id, group)
    make_attempt(client, attempt, files, group)
    if attempt.number == 1:
        write_run(client, root, attempt.run_id, work, cluster.name, sweep)


def _failed(context: Context, action: str, attempt: Attempt, error: RltuiError) -> None:
    """Nothing was submitted: leave no attempt behind, and say so in the journal, as far as that is possible."""
    about = _about(context.cluster.name, attempt)
    with contextlib.suppress(RltuiError):
        reason = f"not submitted: {error.message}"
        try:
            settled = withdraw(context.cluster.client, attempt.path, attempt.uuid, reason)
        except ClusterError:
            settled = False
        context.journal.write(action, "failed", **about, reason=reason[:500], recorded=settled)


def _noted(client: RelayClient, attempt: Attempt, job_id: str) -> bool:
    try:
        note_submitted(client, attempt.path, attempt.uuid, job_id)
    except ClusterError:  # the journal has the id, and the note is made up for by the next refresh
        return False
    return True


def _about(cluster: str, attempt: Attempt) -> dict[str, Any]:
    return {
        "run": attempt.run_id,
        "attempt": attempt.number,
        "uuid": attempt.uuid,
        "cluster": cluster,
        "path": attempt.path,
    }


def _digest(files: dict[str, bytes]) -> str:
    return hashlib.sha256(b"\0".join(files[name] for name in sorted(files))).hexdigest()
