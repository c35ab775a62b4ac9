"""Signals to a run: what each would do to it, and sending exactly one, to a run of the user's own only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rltui.cluster.profile import LOCAL
from rltui.errors import ClusterError, RltuiError, UsageError
from rltui.onnode import rundir
from rltui.service.actions import cancel, preview_cancel
from rltui.service.cockpit import ActionPreview
from rltui.service.describe import attempt_path, checkpoint_words, steps

if TYPE_CHECKING:
    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary

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
    return ActionPreview(
        run_id=run.run_id,
        title=f"Send SIG{name} to {run.run_id}?",
        consequences=(f"attempt {run.attempt}, {run.state}, {steps(run)}", *_consequences(context, run, name)),
        commands=(f"rltui cancel {run.run_id} --signal {name}",),
    )


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
    context.journal.write("signal", "intent", **about)
    try:
        sent = context.cluster.signal(attempt_path(run), run.job_id, name)
    except RltuiError as error:
        phase = "unknown" if isinstance(error, ClusterError) else "failed"
        context.journal.write("signal", phase, **about, reason=error.message[:500])
        raise
    context.journal.write("signal", "done" if sent else "failed", **about)
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
