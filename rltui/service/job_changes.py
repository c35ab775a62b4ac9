"""Changes to a run's Slurm job that make no new attempt: hold, release, requeue, time limit, excluded nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rltui.errors import RltuiError, UsageError
from rltui.layout.time_limit import time_limit_s
from rltui.service.cockpit import ActionPreview

if TYPE_CHECKING:
    from rltui.cluster.slurm.client import SlurmClient
    from rltui.cluster.slurm_cluster import SlurmCluster
    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary


def hold(context: Context, run: RunSummary) -> str:
    """Keep the pending job of ``run`` from starting; returns a sentence on what was done.

    Raises:
        RltuiError: It has no pending Slurm job, or Slurm said no.
        ClusterError: It is unknown whether the word got through.
    """
    _journalled(context, run, "hold", lambda slurm: slurm.hold(run.job_id))
    return f"{run.run_id} is held: it starts after `rltui release {run.run_id}`."


def release(context: Context, run: RunSummary) -> str:
    """Let the held job of ``run`` start; see ``hold``."""
    _journalled(context, run, "release", lambda slurm: slurm.release(run.job_id))
    return f"{run.run_id} may start."


def requeue(context: Context, run: RunSummary, exclude: Sequence[str] = ()) -> str:
    """End the running job of ``run`` and queue it again under the same id, away from ``exclude``; see ``hold``.

    Each start has an attempt directory of its own.
    """
    if not exclude:
        _journalled(context, run, "requeue", lambda slurm: slurm.requeue(run.job_id))
        return f"{run.run_id} is queued again as job {run.job_id}."
    nodes = list(exclude)
    _journalled(context, run, "requeue", lambda slurm: slurm.requeue_without(run.job_id, nodes), exclude=nodes)
    return f"{run.run_id} is queued again as job {run.job_id}, away from {', '.join(nodes)}."


def update(context: Context, run: RunSummary, *, time: str = "", exclude: Sequence[str] = ()) -> str:
    """Change time limit or excluded nodes of a job that waits; see ``hold``.

    Args:
        context: The run's cluster.
        run: The run.
        time: The new time limit, ``HH:MM:SS`` or ``D-HH:MM:SS``; empty: as it is.
        exclude: Nodes to keep away from, besides those that are excluded already.
    """
    seconds = time_limit_s(time) if time else None
    if time and (seconds is None or math.isinf(seconds)):
        raise UsageError(f"{time[:40]!r} is no time limit.", "Write HH:MM:SS or D-HH:MM:SS.")
    if not time and not exclude:
        raise UsageError("Nothing was to be changed.", f"rltui update {run.run_id} --time 12:00:00 --exclude NODE")
    done = []
    if seconds:
        _journalled(context, run, "update", lambda slurm: slurm.set_time_limit(run.job_id, seconds), time=time)
        done.append(f"its time limit is {time}")
    if exclude:
        # Slurm takes this of pending jobs only: nodes are excluded while they are chosen
        nodes = list(exclude)
        _journalled(context, run, "update", lambda slurm: slurm.set_excluded(run.job_id, nodes), exclude=nodes)
        done.append(f"it keeps away from {', '.join(nodes)}")
    return f"{run.run_id}: {' and '.join(done)}."


def too_few_left(context: Context, run: RunSummary, exclude: Sequence[str]) -> str:
    """Why the job of ``run`` would never start again without the nodes ``exclude``; empty where it would."""
    from msgspec.structs import replace

    from rltui.layout.load import load_text
    from rltui.runs.directory import read_layout
    from rltui.runs.script_job import read_script_job
    from rltui.service.describe import attempt_path
    from rltui.service.eligible import eligible_nodes

    if not exclude:
        return ""
    before = _slurm_cluster(context, run).slurm.excluded(run.job_id)
    client, path = context.cluster.client, attempt_path(run)
    job = read_script_job(client, path) or load_text(read_layout(client, path), "layout.yaml").layout
    nodes = dict.fromkeys([*job.slurm.exclude, *before, *exclude])
    left = eligible_nodes(context.cluster, replace(job, slurm=replace(job.slurm, exclude=list(nodes))))
    if left is None or left.eligible >= left.needed:
        return ""
    return (
        f"without {', '.join(exclude)} {left.eligible} of {left.known} nodes of {left.partition} are left, "
        f"{left.needed} are needed: it would never start"
    )


def preview_update(context: Context, run: RunSummary, exclude: Sequence[str]) -> ActionPreview | None:
    """What there is to agree to before nodes are excluded; None where enough are left."""
    context.require_own(run)
    warning = too_few_left(context, run, exclude)
    if not warning:
        return None
    words = ["rltui", "update", run.run_id, *(f"--exclude {node}" for node in exclude)]
    title = f"Change {run.run_id} all the same?"
    return ActionPreview.of(run.identity, title, [warning], " ".join(words))


def preview_requeue(context: Context, run: RunSummary, exclude: Sequence[str] = ()) -> ActionPreview:
    """What requeueing would do: stop the job, and start it again from its newest checkpoint."""
    _slurm_cluster(context, run)
    from rltui.service.describe import checkpoint_words, steps

    lines = [f"ends attempt {run.attempt} ({steps(run)}) and queues job {run.job_id} again under the same id"]
    lines.append(f"its next start {checkpoint_words(context, run)}")
    if exclude:
        lines.append(f"it is held until Slurm has taken it off its nodes, then kept away from {', '.join(exclude)}")
        lines += filter(None, [too_few_left(context, run, exclude)])
    return ActionPreview(
        run=run.identity,
        title=f"Requeue {run.run_id}?",
        consequences=tuple(lines),
        commands=(" ".join(["rltui", "requeue", run.run_id, *(f"--exclude {node}" for node in exclude)]),),
        exclude=tuple(exclude),
    )


def _journalled(
    context: Context, run: RunSummary, action: str, act: Callable[[SlurmClient], object], **details: Any
) -> None:
    cluster = _slurm_cluster(context, run)
    about = {"run": run.run_id, "attempt": run.attempt, "cluster": context.name, "job": run.job_id, **details}
    with context.journal.around(action, **about):
        act(cluster.slurm)
    cluster.poller.changed()  # or whoever looks would go on seeing the job as it was


def _slurm_cluster(context: Context, run: RunSummary) -> SlurmCluster:
    """The cluster of the run's job.

    Raises:
        RltuiError: There is no Slurm there, or the run has no live job.
    """
    from rltui.cluster.slurm_cluster import SlurmCluster

    context.require_own(run)
    if not isinstance(context.cluster, SlurmCluster):
        raise RltuiError(f"{run.run_id} is on {context.name}, which has no Slurm.", "This is for Slurm jobs only.")
    if run.share is not None:
        raise RltuiError(
            f"{run.run_id} runs in job {run.share.job_id}, which rltui did not submit, so it is left as it is.",
            f"`rltui cancel {run.run_id}` ends the run and leaves the job.",
        )
    if not run.is_live or not run.job_id:
        raise RltuiError(f"{run.run_id} has no job that could be changed ({run.state}).")
    return context.cluster
