"""Starts of one Slurm job kept apart: each start that Slurm makes again gets the run's next attempt folder."""

import os
import shutil
import time
from typing import Any, Dict

from rltui.onnode import keep_away, lost_nodes, node_evidence, progress, rundir, script_resume
from rltui.onnode.allocation import NODE_FAILURE, REQUEUE, Allocation, failed_alone

COPIED = (rundir.LAYOUT, rundir.ORIGINS, rundir.ENVIRONMENT, rundir.OWN_CODE, rundir.SUBMITTED)


def folder_of_start(attempt: str, job_id: int, restart: int) -> str:
    """The attempt folder for this start of job ``job_id``.

    The first start has the folder that was submitted. A later one takes the run's next number, by making its folder
    (as a submission does, so that nobody else gets the same), with the same layout, code and mark; the folder of the
    start before is closed if that had no time to.

    Args:
        attempt: The folder that was submitted.
        job_id: Slurm's number.
        restart: How often Slurm has started the job again.
    """
    if not restart or not os.path.exists(os.path.join(attempt, rundir.SLURM)):
        return attempt  # Slurm also counts starts that never came as far as this
    attempts = os.path.dirname(attempt)
    before = max((n for n in _numbers(attempts) if _starts_of(attempts, n, job_id)), default=0)
    if before:
        _close(_folder(attempts, before))
    number = max(_numbers(attempts), default=0) + 1
    while True:
        try:
            os.mkdir(_folder(attempts, number), rundir.folder_mode(attempts))
            break
        except FileExistsError:
            number += 1
    fresh = _folder(attempts, number)
    told = rundir.read_json(os.path.join(attempt, rundir.SCRIPT_RUN))
    for name in (*COPIED, *([told["script"]] if told else [])):
        if os.path.exists(os.path.join(attempt, name)):
            shutil.copy2(os.path.join(attempt, name), os.path.join(fresh, name))
    if told:
        rundir.write_json(os.path.join(fresh, rundir.SCRIPT_RUN), script_resume.here(told))
    job = rundir.read_json(os.path.join(attempt, rundir.JOB)) or {}
    rundir.write_json(os.path.join(fresh, rundir.JOB), _moved(job, attempt, fresh, number))
    return fresh


def stays(attempt: str, allocation: Allocation) -> bool:
    """Whether a start that Slurm made again stays on its nodes; it comes back when the one before is over.

    Args:
        attempt: The directory of this start.
        allocation: What it has.
    """
    if keep_away.makes_room(attempt, allocation):
        return False
    # the start before may live on, where its node only seemed dead: it looks at times whether it is over
    time.sleep((progress.WATCH_S + 1.0) * progress.scale())
    return True


def _moved(job: Dict[str, Any], old: str, new: str, number: int) -> Dict[str, Any]:
    """``job.json`` of a requeued attempt, with all paths in its new folder."""
    argv = [new if word == old else word for word in job.get("argv", [])]
    return {**job, "argv": argv, "attempt": number, "requeue_of": job.get("attempt")}


def _close(attempt: str) -> None:
    """Write the end of a start that Slurm ended without leaving it time, with the node that it ended it for."""
    if rundir.read_json(os.path.join(attempt, rundir.END)) is not None:
        return
    record = rundir.read_json(os.path.join(attempt, rundir.SLURM)) or {}
    nodes = record.get("nodes", [])
    lost = lost_nodes.lost_here(attempt, nodes)
    # a node that was alone leaves nobody behind who could tell
    if not lost and len(nodes) == 1 and failed_alone(str(record.get("job_id")), nodes[0]):
        lost = nodes
    blamed = dict.fromkeys(lost, node_evidence.NODE_FAILURE)
    if lost:
        reason = lost_nodes.put_first("Slurm started the job again", blamed)
        rundir.write_end(attempt, "lost", None, reason, bad_nodes=blamed, slurm=NODE_FAILURE)
    else:
        rundir.write_end(attempt, "lost", None, "Slurm ended this start of the job and started it again", slurm=REQUEUE)
    node_evidence.remember(attempt, nodes, blamed, time.time())


def _numbers(attempts: str) -> "list[int]":
    return [int(name) for name in os.listdir(attempts) if name.isdigit()]


def _folder(attempts: str, number: int) -> str:
    return os.path.join(attempts, "%02d" % number)


def _starts_of(attempts: str, number: int, job_id: int) -> bool:
    record = rundir.read_json(os.path.join(_folder(attempts, number), rundir.SLURM)) or {}
    return bool(record.get("job_id") == job_id)
