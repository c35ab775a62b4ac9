"""Running in an allocation that is there: which nodes of it a run gets, and why it gets none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rltui.cluster.cluster import SubmitRefusedError
from rltui.cluster.jobs import AllocationShare
from rltui.cluster.slurm.ids import MARK
from rltui.cluster.slurm_cluster import SlurmCluster
from rltui.errors import RltuiError, UsageError

if TYPE_CHECKING:
    from rltui.cluster.cluster import Attempt
    from rltui.cluster.slurm.steps import Allocation
    from rltui.runs.script_job import Work
    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary


def job_around_us() -> str:
    """The Slurm job that this process is in, such as an ``salloc`` shell's.

    Raises:
        UsageError: It is in none.
    """
    found = os.environ.get("SLURM_JOB_ID", "")
    if not found:
        raise UsageError(
            "This shell is in no Slurm job: SLURM_JOB_ID is not set.",
            "Start one with salloc, or name a running job of yours with --jobid J.",
        )
    return found


def find_allocation(context: Context, job_id: str) -> Allocation:
    """The running job ``job_id`` of the user as a place to run in.

    Raises:
        UsageError: There is no such job, or no Slurm.
        RltuiError: It is another user's, does not run, or is a run itself.
    """
    if not isinstance(context.cluster, SlurmCluster):
        raise UsageError(f"{context.name} has no Slurm, so it has no job {job_id}.", "Add --cluster C of one that has.")
    slurm = context.cluster.slurm
    found = slurm.allocations(job_id)
    if not found:
        raise UsageError(f"Slurm on {context.name} knows no job {job_id}.", "`squeue --me` lists yours.")
    if len(found) > 1:
        raise UsageError(f"Job {job_id} is {len(found)} jobs.", "Name one of them, such as 4242_3.")
    job = found[0].job
    if found[0].uid != slurm.uid():
        raise RltuiError(f"Job {job_id} belongs to {job.user or 'somebody else'}; only your own can be run in.")
    if not job.job_id.isdecimal():
        raise RltuiError(f"Job {job.job_id} is part of an array or of a het job; a run needs a job of one part.")
    if job.has_ended:
        raise RltuiError(f"Job {job_id} has ended ({job.word or job.state}).", "Leave --jobid out to submit a job.")
    if job.state != "running":
        raise RltuiError(f"Job {job_id} does not run yet: it is {job.word or job.state}.", "Launch once it does.")
    if job.comment.startswith(MARK):
        raise RltuiError(f"Job {job_id} is the job of a run itself.", "`rltui ps` lists it; salloc makes room.")
    return found[0]


def is_there(context: Context, job_id: str) -> bool:
    """Whether the allocation still runs and is ours.

    Raises:
        ClusterError: Nobody can tell.
    """
    if not isinstance(context.cluster, SlurmCluster):
        return False
    found = context.cluster.slurm.allocations(job_id)
    return len(found) == 1 and found[0].job.state == "running" and found[0].uid == context.cluster.slurm.uid()


def share_of(context: Context, job_id: str, work: Work, besides: str = "") -> AllocationShare:
    """What ``work`` gets of the allocation: the first nodes that no other run has.

    Args:
        context: The cluster.
        job_id: The allocation.
        work: What is to run.
        besides: A run whose own nodes count as free.

    Raises:
        RltuiError: The job cannot be run in, or has too little, or too little is free; nothing was started.
    """
    allocation = find_allocation(context, job_id)
    holders = held_nodes(context.reader.read().runs, allocation.job.job_id, besides)
    nodes = chosen_nodes(allocation, work, holders)
    left_s = max(0.0, allocation.end_at - context.cluster.client.hello().time) if allocation.end_at else 0.0
    return AllocationShare(
        job_id=allocation.job.job_id, nodes=nodes, cpus=allocation.cpus, restarts=allocation.job.restarts, left_s=left_s
    )


def refusal_in(context: Context, job_id: str, work: Work) -> list[str]:
    """Why ``work`` would not be started in the allocation; empty where it would."""
    try:
        share_of(context, job_id, work)
    except RltuiError as error:
        return [error.message]
    return []


def held_nodes(runs: Sequence[RunSummary], job_id: str, besides: str = "") -> dict[str, str]:
    """The nodes of an allocation that runs have, with the run of each."""
    own = [run for run in runs if run.share is not None and run.share.job_id == job_id and run.end is None]
    return {node: run.run_id for run in own if run.run_id != besides and run.share for node in run.share.nodes}


def chosen_nodes(allocation: Allocation, work: Work, holders: dict[str, str]) -> tuple[str, ...]:
    """The first nodes that are free and enough for ``work``.

    Raises:
        RltuiError: The allocation is too small for it, or too few of its nodes are free; the text names who has them.
    """
    hardware, job_id = work.hardware, allocation.job.job_id
    if hardware.more:
        raise RltuiError(
            "The layout has nodes of several kinds, which only a job of its own can have.",
            "Launch it without an allocation, or set hardware.more={}.",
        )
    has = f"job {job_id} has"
    if hardware.nodes > len(allocation.nodes):
        raise RltuiError(
            f"{hardware.nodes} nodes are asked for; {has} {len(allocation.nodes)}.", "Set hardware.nodes, or --nodes."
        )
    if not hardware.on_cpu and hardware.gpus_per_node > allocation.gpus:
        raise RltuiError(
            f"{hardware.gpus_per_node} GPUs a node are asked for; {has} {allocation.gpus}.",
            "Set hardware.gpus_per_node, or --gpus-per-node.",
        )
    if hardware.on_cpu and hardware.ray_cpus_per_node > allocation.cpus:
        raise RltuiError(
            f"{hardware.ray_cpus_per_node} CPUs a node are asked for; {has} {allocation.cpus}.",
            "Ask salloc for more (--cpus-per-task), or set hardware.cpus_per_node.",
        )
    excluded = {node for node in work.slurm.exclude if node in allocation.nodes}
    free = [node for node in allocation.nodes if node not in holders and node not in excluded]
    if hardware.nodes > len(free):
        taken = [f"{node} is {run}'s" for node, run in holders.items()] + [f"{node} is excluded" for node in excluded]
        raise RltuiError(
            f"{hardware.nodes} nodes are asked for; of job {job_id} {len(free)} are free: {', '.join(taken)}.",
            " ".join(f"`rltui cancel {run}`" for run in dict.fromkeys(holders.values()))
            + " leaves the allocation." * bool(holders),
        )
    return tuple(free[: hardware.nodes])


def require_alone(context: Context, attempt: Attempt, share: AllocationShare) -> None:
    """Give way to another launch that took one of the nodes at the same moment.

    Each writes first what it takes and looks then, so that at least one of two sees the other.

    Raises:
        SubmitRefusedError: There is one; nothing was started.
    """
    holders = held_nodes(context.reader.read().runs, share.job_id, attempt.run_id)
    taken = [f"{node} is {holders[node]}'s" for node in share.nodes if node in holders]
    if taken:
        raise SubmitRefusedError(f"Another launch was faster: {', '.join(taken)}.", "Launch again.")


def start_in(context: Context, attempt: Attempt, share: AllocationShare, work: Work) -> str:
    """Start the attempt, whose files are in place, in its share of an allocation; returns that job's id.

    Raises:
        SubmitRefusedError: Nothing was started.
        SubmitUnknownError: Nobody can tell.
    """
    from rltui.runs.script import needs_login_shell

    assert isinstance(context.cluster, SlurmCluster)
    require_alone(context, attempt, share)
    shell = ["bash", "-l"] if needs_login_shell(work, context.cluster.profile) else ["bash"]
    return context.cluster.start_step(attempt, share, shell)
