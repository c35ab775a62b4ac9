"""From the rows of an answer to one snapshot an id: arrays, het jobs, requeues, and ids that were given out again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from rltui.cluster.jobs import JobSnapshot
from rltui.cluster.slurm.ids import MARK, base_id, read_id, waiting_tasks
from rltui.cluster.slurm.queries import newest

TELLING = ("running", "completing", "suspended", "pending", "unknown", "failed", "cancelled", "completed")
"""Of several parts of a job, the state named first here is the whole's: it is over when all of them are."""

SAME_SUBMIT_S = 2.0


def by_id(jobs: Sequence[JobSnapshot]) -> dict[str, JobSnapshot]:
    """Return the newest record of each id; parts of a het job and tasks of an array also as one, by their base."""
    found = newest(jobs)
    parts: dict[str, list[JobSnapshot]] = {}
    for job in found.values():
        identity = read_id(job.job_id)
        if identity is not None and (identity.task or identity.part is not None):
            parts.setdefault(identity.base, []).append(job)
    for base, ones in parts.items():
        found.setdefault(base, _whole(base, ones))
    return found


def waiting_among(found: Mapping[str, JobSnapshot], wanted: Iterable[str]) -> dict[str, JobSnapshot]:
    """Those of the ``wanted`` ids that wait as tasks of an array, which squeue lists as one."""
    arrays = [(job, tasks) for job in found.values() if (tasks := waiting_tasks(job.job_id))]
    waiting: dict[str, JobSnapshot] = {}
    for one in wanted:
        identity = read_id(one)
        if one in found or identity is None or not identity.task.isdigit():
            continue
        for job, tasks in arrays:
            if base_id(job.job_id) == identity.base and any(int(identity.task) in numbers for numbers in tasks):
                waiting[one] = replace(job, job_id=one)
    return waiting


def is_same_job(known: JobSnapshot, other: JobSnapshot) -> bool:
    """Whether two records of one id are of one job: a requeue gives it a later submit time, but keeps mark and name."""
    if abs(known.submitted_at - other.submitted_at) < SAME_SUBMIT_S:
        return True
    if other.submitted_at < known.submitted_at:
        return False  # a record from before a requeue, or before the id was given out again
    if known.comment.startswith(MARK) and other.comment.startswith(MARK):
        return known.comment == other.comment
    return known.name == other.name


def _whole(base: str, parts: Sequence[JobSnapshot]) -> JobSnapshot:
    telling = min(parts, key=lambda job: (TELLING.index(job.state), job.job_id))
    starts = [job.started_at for job in parts if job.started_at]
    nodes = dict.fromkeys(node for job in parts for node in job.nodes)
    return replace(
        telling,
        job_id=base,
        nodes=tuple(nodes),
        node_count=sum(job.node_count for job in parts) if "+" in parts[0].job_id else telling.node_count,
        started_at=min(starts, default=0.0),
        ended_at=max(job.ended_at for job in parts) if telling.has_ended else 0.0,
    )
