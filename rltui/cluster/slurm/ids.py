"""The grammar of Slurm's job ids: ``88``, ``88_3``, ``88_[4-10%1]`` (an array), ``123+1`` (one part of a het job)."""

from __future__ import annotations

import re

from msgspec import Struct

from rltui.errors import UsageError

_ID = re.compile(r"(\d{1,12})(?:_(\d{1,12}|\[[0-9,%:.-]*\])|\+(\d{1,6}))?\Z", re.ASCII)


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
