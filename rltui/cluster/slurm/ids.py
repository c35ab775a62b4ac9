"""The grammar of Slurm's job ids: ``88``, ``88_3``, ``88_[4-10%1]`` (an array), ``123+1`` (one part of a het job)."""

from __future__ import annotations

import re

from msgspec import Struct

from rltui.errors import UsageError

_ID = re.compile(r"(\d{1,12})(?:_(\d{1,12}|\[[0-9,%:.-]*\])|\+(\d{1,6}))?\Z", re.ASCII)

_TASKS = re.compile(r"(\d{1,12})(?:-(\d{1,12})(?::([1-9]\d{0,11}))?)?\Z", re.ASCII)


class JobId(Struct, frozen=True):
    """One id, taken apart."""

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
