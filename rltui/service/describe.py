"""Facts of a run in the words that previews and messages use."""

from __future__ import annotations

from collections.abc import Iterable

from rltui.cluster.relay_types import SmallFile
from rltui.onnode import rundir
from rltui.onnode.checkpoints import step_of
from rltui.runs.script_job import LARGEST, decoded
from rltui.service.context import Context
from rltui.service.script_changes import newest_checkpoint
from rltui.watch.snapshots import RunSummary

COMPLETE = f"{rundir.CHECKPOINTS}/step-*/{rundir.CHECKPOINT_COMPLETE}"
"""The markers of a run's complete checkpoints, below its directory."""


def attempt_path(run: RunSummary) -> str:
    """Directory of the attempt that ``run`` is at."""
    return rundir.attempt_folder(run.path, run.attempt)


def newest_checkpoint_step(context: Context, run: RunSummary) -> int | None:
    """Step of the newest complete checkpoint, or None."""
    record = f"{rundir.ATTEMPTS}/{run.attempt:02d}/{rundir.SCRIPT_RUN}"
    found = context.cluster.client.collect(run.path, [COMPLETE, record], LARGEST)
    for file in found:
        if file.path == record:
            newest = newest_checkpoint(context, decoded(file.text or "", record))
            return newest.step if newest is not None else None
    return next(iter(complete_steps(found)), None)


def complete_steps(found: Iterable[SmallFile]) -> list[int]:
    """Steps of the checkpoints whose markers, by ``COMPLETE``, were found, the newest first."""
    steps = (step_of(file.path.split("/")[-2]) for file in found)
    return sorted((step for step in steps if step is not None), reverse=True)


def checkpoint_words(context: Context, run: RunSummary) -> str:
    """Where a new attempt of ``run`` would go on."""
    return start_words(newest_checkpoint_step(context, run))


def start_words(step: int | None) -> str:
    """Where a new attempt goes on whose newest checkpoint is of ``step``."""
    if step is None:
        return "starts at step 0: there is no checkpoint yet"
    return f"goes on from the checkpoint at step {step}"


def state_began(run: RunSummary) -> float:
    """When the run's state began: training and saving alternate, and both are running."""
    starts = [float(entry["at"]) for entry in run.stage.history if entry["stage"] == "training"]
    if run.state == "running" and starts:
        return starts[0]
    # a job that waits has written no stage
    return run.stage.since or (run.job.submitted_at if run.job else 0.0) or run.created_at


def steps(run: RunSummary) -> str:
    """How far it has come."""
    if run.stage.steps:
        return f"step {run.stage.step or 0} of {run.stage.steps}"
    return "no step yet" if run.stage.step is None else f"step {run.stage.step}"


def steps_done(run: RunSummary) -> str:
    """``12 of 300 steps``, or ``12 steps`` where nobody has said of how many."""
    return f"{run.stage.step or 0}{f' of {run.stage.steps}' if run.stage.steps else ''} steps"


def span(seconds: float) -> str:
    """``2 h 5 min``, ``3 min`` or ``12 s``."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min" if minutes else f"{rest} s"


def gpu_hours(run: RunSummary, now: float) -> float:
    """GPU hours that the attempt has held so far; 0 before it starts and on CPUs."""
    began = run.job.started_at if run.job is not None else 0.0
    if not began or run.gpu == "cpu":
        return 0.0
    return max(0.0, now - began) / 3600 * run.num_gpus
