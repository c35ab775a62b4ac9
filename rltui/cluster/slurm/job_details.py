"""One job as ``scontrol show job`` tells of it: what a list does not say, such as where its output goes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from msgspec import Struct

from rltui.cluster.jobs import ENDED_STATES, JobSnapshot
from rltui.cluster.plain_text import plain
from rltui.cluster.slurm.everybody import gpus_of
from rltui.cluster.slurm.ids import read_id
from rltui.cluster.slurm.records import NEVER, read_duration_s, read_pairs, read_time, whole
from rltui.cluster.slurm.states import read_state

_OWNER = re.compile(r"(.*)\((\d+)\)\Z")
_PLACEHOLDER = re.compile(r"%([%AabjJux])")
NO_LOG = frozenset({"", "/dev/null", *NEVER})


class JobDetails(Struct, frozen=True, kw_only=True):
    """A job with what only its own question tells.

    Attributes:
        job: The job as a list would have it.
        uid: Its owner's number.
        command: The script it was submitted with; empty where it has none.
        words: The script's arguments.
        folder: The folder it was submitted in.
        logs: Where its output goes: one file, or two where errors go elsewhere.
        nodes: How many it has, or asks for.
        gpus: How many it has, or asks for, in all.
        gpu: Their type as Slurm calls it; empty where it does not say.
    """

    job: JobSnapshot
    uid: str
    command: str
    words: tuple[str, ...]
    folder: str
    logs: tuple[str, ...]
    nodes: int
    gpus: int
    gpu: str


def read_jobs(text: str) -> tuple[JobDetails, ...]:
    """Return the jobs in the output of ``scontrol --oneliner show job``."""
    lines = [line for line in text.splitlines() if line.startswith("JobId=")]
    return tuple(_details(read_pairs(line, free=""), line) for line in lines)


def _details(pairs: Mapping[str, str], line: str) -> JobDetails:
    owner = _OWNER.match(pairs.get("UserId", ""))
    user, uid = (owner[1], owner[2]) if owner else ("", "")
    command, *words = _split(pairs.get("Command", ""))
    nodes = whole(pairs.get("NumNodes", "").partition("-")[0]) or 1
    kind, gpus = _gpus(pairs, nodes)
    state = read_state(pairs.get("JobState", ""))
    is_over = state.state in ENDED_STATES
    job = JobSnapshot(
        job_id=_id(pairs),
        state=state.state,
        word=state.word,
        name=plain(pairs.get("JobName", "")),
        comment=plain(pairs.get("Comment", "")),
        user=plain(user),
        partition=plain(pairs.get("Partition", "")),
        account=plain(pairs.get("Account", "")),
        submitted_at=read_time(pairs.get("SubmitTime", "")),
        started_at=read_time(pairs.get("StartTime", "")),
        # of a job that runs EndTime is when its time limit will end it
        ended_at=read_time(pairs.get("EndTime", "")) if is_over else 0.0,
        time_limit_s=read_duration_s(pairs.get("TimeLimit", "")) or 0.0,
        restarts=whole(pairs.get("Restarts", "")) or 0,
    )
    outputs = (_filled(_last(line, name), job, pairs["JobId"]) for name in ("StdOut", "StdErr"))
    return JobDetails(
        job=job,
        uid=uid,
        command=command,
        words=tuple(words),
        folder=pairs.get("WorkDir", ""),
        logs=tuple(dict.fromkeys(path for path in outputs if path not in NO_LOG)),
        nodes=nodes,
        gpus=gpus,
        gpu=kind,
    )


def _last(line: str, name: str) -> str:
    """The value of a key that stands behind the comment, in which people write what they like."""
    value = line.rpartition(f" {name}=")[2] if f" {name}=" in line else ""
    return re.split(r" (?=[A-Z][A-Za-z]*=)", value)[0].strip()


def _id(pairs: Mapping[str, str]) -> str:
    """The id under which squeue lists it: a task of an array has a number of its own too; those that wait are one."""
    array, tasks = pairs.get("ArrayJobId", ""), pairs.get("ArrayTaskId", "")
    if not array or not tasks:
        return pairs["JobId"]
    return f"{array}_{tasks}" if tasks.isdigit() else f"{array}_[{tasks}]"


def _split(command: str) -> list[str]:
    """A command as words; Slurm writes them behind one another without quotes."""
    if command in NEVER:
        return [""]
    try:
        return shlex.split(command) or [""]
    except ValueError:
        return command.split()


def _gpus(pairs: Mapping[str, str], nodes: int) -> tuple[str, int]:
    """Type and number of all GPUs of the job; not all sites have Slurm count them."""
    # behind TRES stands JOB_GRES, a key as no other one is
    counted = (pairs.get(name, "").partition(" ")[0] for name in ("AllocTRES", "ReqTRES", "TRES"))
    tres = next((one for one in counted if "gres/gpu" in one), "")
    kind, gpus = gpus_of(tres, pairs.get("TresPerJob", ""), pairs.get("TresPerNode", ""), nodes)
    return kind, gpus or 0


def _filled(path: str, job: JobSnapshot, number: str) -> str:
    """A path with the signs filled in that older releases leave there."""
    identity = read_id(job.job_id)
    base, task = (identity.base, identity.task) if identity else (job.job_id, "")
    # a task of an array has a number of its own, and A is the array's
    signs = {"%": "%", "j": number, "J": number, "A": base, "a": task, "b": task[-1:], "u": job.user, "x": job.name}
    return _PLACEHOLDER.sub(lambda match: signs[match[1]], path)
