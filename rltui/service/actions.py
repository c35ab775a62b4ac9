"""Cancelling and signalling: previewed, journalled, verified, and only ever for a run that was named exactly."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from rltui.cluster.profile import LOCAL
from rltui.cluster.relay_types import OUTCOME_UNKNOWN, RelayError
from rltui.errors import ClusterError, RltuiError, UsageError
from rltui.onnode import rundir
from rltui.runs.claims import bar_start, read_evidence, read_uuid, write_end
from rltui.service.cockpit import ActionPreview
from rltui.service.context import Context
from rltui.service.describe import attempt_path, checkpoint_words, gpu_hours, span, state_began, steps
from rltui.watch.snapshots import RunSummary

TRIES = 3
"""Ending the same job twice is the same as once, so a lost answer is asked for again."""


class Target(Struct, frozen=True, kw_only=True):
    """One attempt that is to be cancelled: its number and folder, and the job it is known by."""

    number: int
    path: str
    uuid: str
    job: str
    started: bool
    is_step: bool


def preview_cancel(context: Context, run: RunSummary) -> ActionPreview:
    """What cancelling ``run`` would do.

    Raises:
        RltuiError: It has ended already.
    """
    context.require_own(run)
    _refuse_ended(run)
    now = time.time()
    lines = [f"attempt {run.attempt}, {run.state} for {span(now - state_began(run))}, {steps(run)}"]
    if run.job_id and run.cluster != LOCAL:
        held = gpu_hours(run, now)
        spent = f", {held:.1f} GPU hours so far" if held else ""
        lines.append(f"job {run.job_id} on {run.cluster}{spent}" + (", which stays" if run.share else ""))
    if run.state == "queued":
        lines.append("it has not started: nothing is lost")
    elif run.state == "unknown":
        lines.append("whether it was submitted is not known: if it turns up later it ends at once")
    else:
        lines.append("the trainer saves a checkpoint first if it is training, then everything of this run ends")
    if run.last_attempt > run.attempt:
        lines.append(f"the {run.last_attempt - run.attempt} jobs that wait behind it in the chain are cancelled too")
    saves = run.state == "running" and bool(run.stage.step)
    otherwise = "goes on from there; should that fail, it " if saves else ""
    lines.append(f"resubmitted later, it {otherwise}{checkpoint_words(context, run)}")
    return ActionPreview.of(run.identity, f"Cancel {run.run_id}?", lines, f"rltui cancel {run.run_id}")


def cancel(context: Context, run: RunSummary) -> str:
    """Ask for the end of ``run`` and of every job that waits behind it; returns a sentence on what was done.

    Raises:
        RltuiError: It has ended already, or the journal cannot be written.
        ClusterError: It is unknown whether the word got through; asking again is safe.
    """
    context.require_own(run)
    _refuse_ended(run)
    # those that wait go first: they would start as soon as the one before them ends
    targets = [_target(context, run, number) for number in range(run.last_attempt or run.attempt, run.attempt - 1, -1)]
    ended = [_cancel(context, run, target) for target in targets]
    return f"{run.run_id} is ending." if any(ended) else f"{run.run_id} had ended a moment before."


def drop_waiting(context: Context, run: RunSummary, numbers: Iterable[int], outcome: str, reason: str) -> None:
    """Cancel jobs that wait behind an attempt, and note that they were not needed.

    Args:
        context: The run's cluster.
        run: The run.
        numbers: Their attempts; what has started meanwhile is left alone.
        outcome: How the attempt before them ended, one of ``rundir.OUTCOMES``.
        reason: Why nothing follows it.

    Raises:
        ClusterError: It is unknown whether the word got through.
    """
    for target in [target for number in numbers if not (target := _target(context, run, number)).started]:
        # the end first: what the cancelling would write is that somebody did not want the run any more
        if bar_start(context.cluster.client, target.path, target.uuid):
            write_end(context.cluster.client, target.path, outcome, reason, unneeded=True)
        _cancel(context, run, target)


def _cancel(context: Context, run: RunSummary, target: Target) -> bool:
    about: dict[str, Any] = {"run": run.run_id, "attempt": target.number, "cluster": context.name, "job": target.job}
    intended = {"mark": target.uuid, "path": target.path}
    with context.journal.around("cancel", intended=intended, **about) as outcome:
        if not (sent := _told(context, target)):
            outcome.phase = "failed"
    return sent


def _told(context: Context, target: Target) -> bool:
    """Bar what has not started, tell the scheduler, and write down the end of what never ran."""
    client = context.cluster.client
    if context.cluster.profile.scheduler in ("local", "hosts"):
        return context.cluster.cancel(target.path, target.job)
    never_ran = not target.started and bar_start(client, target.path, target.uuid)
    try:
        job = target.job or context.cluster.find_submission(target.uuid, 0.0)
        sent = bool(job) and _again(context, target.path, job or "")
    except ClusterError:
        # whatever is still in the queue under this mark ends as soon as it starts
        if not never_ran or target.job:
            raise
        sent = False
    if never_ran:
        write_end(client, target.path, "cancelled", "cancelled by the user before it started")
    elif target.is_step and not sent:  # nothing of it is there any more that could say so
        write_end(client, target.path, "lost", "its step in the allocation ended without a word")
    return sent or never_ran


def _again(context: Context, path: str, job: str, tries: int = TRIES) -> bool:
    try:
        return context.cluster.cancel(path, job)
    except RelayError as error:
        if error.kind not in OUTCOME_UNKNOWN or tries <= 1:
            raise
    return _again(context, path, job, tries - 1)


def _target(context: Context, run: RunSummary, number: int) -> Target:
    path = rundir.attempt_folder(run.path, number)
    uuid = read_uuid(context.cluster.client, path)
    evidence = read_evidence(context.cluster.client, path, uuid)
    return Target(
        number=number, path=path, uuid=uuid, job=evidence.job, started=evidence.started, is_step=run.share is not None
    )


def _refuse_ended(run: RunSummary) -> None:
    if not run.is_live and run.state != "unknown":
        raise RltuiError(
            f"{run.run_id} has ended already ({run.state}).", f"rltui resubmit {run.run_id} starts it again."
        )


SIGNALS = {
    "TERM": "save and end: what cancel does",
    "INT": "the same as TERM",
    "USR2": "save and end, as before a time limit",
    "USR1": "passed on to those of its processes that have a handler for it",
    "QUIT": "passed on in the same way",
    "KILL": "end everything at once, and save nothing",
}
"""Name → what it does to a run that rltui started."""

AS_CANCEL = ("TERM", "INT")


def signal_name(word: str) -> str:
    """The name of a signal as people write it: ``usr1``, ``SIGUSR1``.

    Raises:
        UsageError: It is none of ``SIGNALS``.
    """
    name = word.upper().removeprefix("SIG")
    if name not in SIGNALS:
        raise UsageError(f"{word[:20]!r} is no signal that a run is sent.", f"There are {', '.join(SIGNALS)}.")
    return name


def preview_signal(context: Context, run: RunSummary, name: str) -> ActionPreview:
    """What sending ``name`` to ``run`` would do.

    Raises:
        RltuiError: It has not started or has ended, or cannot be sent this one.
    """
    if name in AS_CANCEL:
        return preview_cancel(context, run)
    _require(context, run, name)
    lines = [f"attempt {run.attempt}, {run.state}, {steps(run)}", *_consequences(context, run, name)]
    title, command = f"Send SIG{name} to {run.run_id}?", f"rltui cancel {run.run_id} --signal {name}"
    return ActionPreview.of(run.identity, title, lines, command)


def send_signal(context: Context, run: RunSummary, name: str) -> str:
    """Send ``name`` to ``run``; returns a sentence on what was done.

    Raises:
        RltuiError: As ``preview_signal``, or the journal cannot be written.
        ClusterError: It is unknown whether it got through. It is not sent again by itself.
    """
    if name in AS_CANCEL:
        return cancel(context, run)
    _require(context, run, name)
    about: dict[str, Any] = {"run": run.run_id, "attempt": run.attempt, "cluster": context.name, "job": run.job_id}
    about["command"] = f"SIG{name}"
    with context.journal.around("signal", **about) as outcome:
        if not (sent := context.cluster.signal(attempt_path(run), run.job_id, name)):
            outcome.phase = "failed"
    if not sent:
        return f"{run.run_id} had ended a moment before: nothing was sent."
    return f"SIG{name} was sent to {run.run_id}."


def _consequences(context: Context, run: RunSummary, name: str) -> list[str]:
    if run.is_adopted:
        whom = "the process that was adopted, and nothing that it started" if run.cluster == LOCAL else _ADOPTED_JOB
        return [f"rltui did not start it, so what SIG{name} does to it is its own: it goes to {whom}"]
    if name == "KILL":
        lines = ["everything of this run is ended at once: no checkpoint is saved, logs may lack their last lines"]
        behind = run.last_attempt - run.attempt
        lines += [f"the {behind} jobs that wait behind it in the chain start then"] if behind > 0 else []
        return [*lines, f"resubmitted later, it {checkpoint_words(context, run)}"]
    if name == "USR2":
        return [
            "the trainer finishes its step, saves a checkpoint and ends, as it does before a time limit",
            "a script of another system gets SIGTERM instead: what it saves is its own",
        ]
    return [
        f"those of its processes on its first node that have a handler for SIG{name} get it, and no other",
        "rltui's own trainers have none: for them nothing happens, and the run goes on",
        "its events say which processes got it",
    ]


_ADOPTED_JOB = "the steps of its job (srun), not to the batch script"


def _require(context: Context, run: RunSummary, name: str) -> None:
    context.require_own(run)
    if run.state == "queued" or not run.is_live:
        raise RltuiError(f"{run.run_id} has no process that a signal could reach ({run.state}).")
    if run.is_adopted or name == "KILL":
        return
    text = context.cluster.client.read(f"{attempt_path(run)}/{rundir.SUPERVISOR}", 0, 1 << 16).data
    if "signals" not in json.loads(text or b"{}"):
        raise RltuiError(
            f"{run.run_id} was started by an older rltui, which SIG{name} would end without a word.",
            f"`rltui cancel {run.run_id}` lets it save and end.",
        )
