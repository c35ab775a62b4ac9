"""Cancel and resubmit: previewed, journalled, and only ever for a run that was named exactly."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rltui.errors import RltuiError
from rltui.layout.load import load_text
from rltui.onnode import rundir
from rltui.runs.directory import read_layout
from rltui.service.cockpit import ActionPreview
from rltui.service.launch import Launched, RefusedError, launchable, require_modules, submit_attempt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary


def preview_cancel(context: Context, run: RunSummary) -> ActionPreview:
    """What cancelling ``run`` would do.

    Raises:
        RltuiError: It has ended already.
    """
    if not run.is_live:
        raise RltuiError(
            f"{run.run_id} has ended already ({run.state}).", f"rltui resubmit {run.run_id} starts it again."
        )
    lines = [f"attempt {run.attempt}, {run.state} for {_age(time.time() - _state_began(run))}, {_steps(run)}"]
    if run.state == "queued":
        lines.append("it has not started: nothing is lost")
    else:
        lines.append("the trainer saves a checkpoint first if it is training, then everything of this run ends")
    lines.append(f"resubmitted later, it {_checkpoint_words(context, run)}")
    return ActionPreview(
        run_id=run.run_id,
        title=f"Cancel {run.run_id}?",
        consequences=tuple(lines),
        commands=(f"rltui cancel {run.run_id}",),
    )


def cancel(context: Context, run: RunSummary) -> str:
    """Ask for the end of ``run``; returns a sentence on what was done.

    Raises:
        RltuiError: It has ended already, or the journal cannot be written.
    """
    if not run.is_live:
        raise RltuiError(f"{run.run_id} has ended already ({run.state}).")
    about = {"run": run.run_id, "attempt": run.attempt, "cluster": run.cluster}
    context.journal.write("cancel", "intent", **about)
    sent = context.cluster.cancel(attempt_path(run))
    context.journal.write("cancel", "done" if sent else "failed", **about)
    return f"{run.run_id} is ending." if sent else f"{run.run_id} had ended a moment before."


def preview_resubmit(context: Context, run: RunSummary) -> ActionPreview:
    """What resubmitting ``run`` would do, and from where it would go on.

    Raises:
        RltuiError: It is still alive.
    """
    _refuse_live(run)
    lines = (
        f"starts attempt {run.attempt + 1} of {run.run_id}, same layout, same seed",
        f"it {_checkpoint_words(context, run)}",
    )
    return ActionPreview(
        run_id=run.run_id,
        title=f"Resubmit {run.run_id}?",
        consequences=lines,
        commands=(f"rltui resubmit {run.run_id}",),
    )


def resubmit(context: Context, run: RunSummary, overrides: Sequence[str] = ()) -> Launched:
    """Start a new attempt of ``run`` with ``overrides``; its trainer goes on from the newest complete checkpoint.

    Raises:
        RltuiError: The run is alive, a finding stands in the way, or the submission failed.
    """
    from rltui.check.run import check_layout

    _refuse_live(run)
    path = f"{attempt_path(run)}/{rundir.LAYOUT}"
    loaded = load_text(read_layout(context.cluster.client, attempt_path(run)), path, overrides)
    report = launchable(check_layout(loaded))
    if not report.ok:
        raise RefusedError(report)
    require_modules(loaded.layout)
    return submit_attempt(context, run.run_id, loaded.layout, "resubmit")


def attempt_path(run: RunSummary) -> str:
    """Directory of the newest attempt of ``run``."""
    return rundir.attempt_folder(run.path, run.attempt)


def newest_checkpoint_step(context: Context, run: RunSummary) -> int | None:
    """Step of the newest complete checkpoint, or None."""
    pattern = f"{rundir.CHECKPOINTS}/step-*/{rundir.CHECKPOINT_COMPLETE}"
    found = context.cluster.client.collect(run.path, [pattern], 4096)
    steps = [int(file.path.split("/")[-2].removeprefix("step-")) for file in found]
    return max(steps, default=None)


def _refuse_live(run: RunSummary) -> None:
    if run.is_live:
        raise RltuiError(f"{run.run_id} is still {run.state}.", f"rltui cancel {run.run_id} ends it first.")


def _checkpoint_words(context: Context, run: RunSummary) -> str:
    step = newest_checkpoint_step(context, run)
    return (
        "starts at step 0: there is no checkpoint yet"
        if step is None
        else f"goes on from the checkpoint at step {step}"
    )


def _state_began(run: RunSummary) -> float:
    """When the run's state began: training and saving alternate, and both are running."""
    starts = [float(entry["at"]) for entry in run.stage.history if entry["stage"] == "training"]
    return starts[0] if run.state == "running" and starts else run.stage.since


def _steps(run: RunSummary) -> str:
    return f"step {run.stage.step or 0} of {run.stage.steps}" if run.stage.steps else "no step yet"


def _age(seconds: float) -> str:
    minutes, rest = divmod(max(0, int(seconds)), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min" if minutes else f"{rest} s"
