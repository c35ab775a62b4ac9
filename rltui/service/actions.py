"""Cancelling: previewed, journalled, verified, and only ever for a run that was named exactly."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rltui.cluster.profile import LOCAL
from rltui.cluster.relay_types import OUTCOME_UNKNOWN, RelayError
from rltui.errors import ClusterError, RltuiError
from rltui.onnode import rundir
from rltui.runs.claims import bar_start, read_evidence, read_uuid, write_end
from rltui.service.cockpit import ActionPreview
from rltui.service.describe import attempt_path, checkpoint_words, gpu_hours, span, state_began, steps

if TYPE_CHECKING:
    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary

__all__ = ["attempt_path", "cancel", "preview_cancel"]

TRIES = 3
"""Ending the same job twice is the same as once, so a lost answer is asked for again."""


class Target(Struct, frozen=True, kw_only=True):
    """One attempt to cancel."""

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
    return ActionPreview(
        run_id=run.run_id,
        title=f"Cancel {run.run_id}?",
        consequences=tuple(lines),
        commands=(f"rltui cancel {run.run_id}",),
    )


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
    context.journal.write("cancel", "intent", **about, mark=target.uuid, path=target.path)
    try:
        sent = _told(context, target)
    except ClusterError as error:
        context.journal.write("cancel", "unknown", **about, reason=error.message[:500])
        raise
    except RltuiError as error:
        context.journal.write("cancel", "failed", **about, reason=error.message[:500])
        raise
    context.journal.write("cancel", "done" if sent else "failed", **about)
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
