"""The mark by which a job is found again: its attempt's uuid in the comment, and the start of it in the name.

The name is the second place because many sites keep comments out of the accounting database (Slurm stores them there
only with ``AccountingStoreFlags=job_comment``, and for a requeued job not before its end), and some rewrite them.
"""

from __future__ import annotations

import re

from rltui.cluster.jobs import JobSnapshot

MARK = "rltui:"
NAME_LIMIT = 60
_SAFE = re.compile(r"[^A-Za-z0-9._-]+")


def comment_of(uuid: str) -> str:
    """The comment of an attempt's job."""
    return MARK + uuid


def job_name_of(name: str, uuid: str) -> str:
    """The name of an attempt's job: the run's, made safe, and the first eight digits of the uuid."""
    return f"{_SAFE.sub('-', name).strip('-.')[:NAME_LIMIT] or 'rltui'}-{uuid[:8]}"


def is_marked(job: JobSnapshot, uuid: str) -> bool:
    """Whether a job is the attempt's: by its comment, or by its name where the comment holds no mark of ours."""
    if job.comment.startswith(MARK):
        return job.comment.strip() == comment_of(uuid)
    return len(uuid) >= 8 and job.name.endswith(f"-{uuid[:8]}")


def is_foreign(job: JobSnapshot, uuid: str) -> bool:
    """Whether a job is certainly not the attempt's: the scheduler gave its id away again."""
    return job.comment.startswith(MARK) and job.comment.strip() != comment_of(uuid)
