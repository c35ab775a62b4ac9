"""The grammar of Slurm's job ids: ``88``, ``88_3``, ``88_[4-10%1]`` (an array), ``123+1`` (one part of a het job).

And the mark by which an attempt's job is found again: its uuid in the comment, and the start of it in the name. The
name is the second place because many sites keep comments out of the accounting database (Slurm stores them there only
with ``AccountingStoreFlags=job_comment``, and for a requeued job not before its end), and some rewrite them.
"""

from __future__ import annotations

import re

from msgspec import Struct

from rltui.cluster.jobs import JobSnapshot
from rltui.errors import UsageError

_ID = re.compile(r"(\d{1,12})(?:_(\d{1,12}|\[[0-9,%:.-]*\])|\+(\d{1,6}))?\Z", re.ASCII)

_TASKS = re.compile(r"(\d{1,12})(?:-(\d{1,12})(?::([1-9]\d{0,11}))?)?\Z", re.ASCII)


class JobId(Struct, frozen=True):
    """A job's id taken apart: arrays and het jobs have parts beside the number."""

    base: str
    """The number that sbatch gave."""
    task: str = ""
    """An array task's number, or what is left of an array: ``[4-10%1]``."""
    part: int | None = None
    """The part of a het job; 0 leads it."""


def read_id(text: str) -> JobId | None:
    """Take an id apart, or None where it is none."""
    match = _ID.match(text)
    return JobId(match[1], match[2] or "", None if match[3] is None else int(match[3])) if match else None


def waiting_tasks(job_id: str) -> tuple[range, ...]:
    """The numbers of the tasks that ``88_[4-10%1]`` stands for; none where it is no array that waits."""
    found = read_id(job_id)
    if found is None or not found.task.startswith("["):
        return ()
    numbers = found.task[1:-1].partition("%")[0].split(",")
    matches = (_TASKS.match(one) for one in numbers)  # of a long list squeue writes "..." for its end
    return tuple(range(int(one[1]), int(one[2] or one[1]) + 1, int(one[3] or 1)) for one in matches if one)


def first_task(job_id: str) -> str:
    """``88_4`` of ``88_[4-10%1]``; any other id as it is."""
    tasks = waiting_tasks(job_id)
    return f"{base_id(job_id)}_{tasks[0].start}" if tasks else job_id


def base_id(job_id: str) -> str:
    """The number that sbatch gave, of an id with or without an array's task or a het job's part."""
    found = read_id(job_id)
    return found.base if found else job_id


def checked(job_id: str) -> str:
    """Return an id that may be a word of a command.

    Raises:
        UsageError: It is none.
    """
    found = read_id(job_id)
    if found is None or found.task.startswith("["):
        raise UsageError(
            f"{job_id[:40]!r} is no job id of Slurm.", "It is a number such as 4242, or 4242_3 of an array."
        )
    return job_id


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
