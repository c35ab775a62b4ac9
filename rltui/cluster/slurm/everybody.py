"""Everybody's jobs in the queue: what is asked of squeue for it, and how the answer becomes jobs.

squeue is given the whole queue by the controller whatever it is asked for, and leaves out the rest itself: to ask for
one partition only would spare the controller nothing.
"""

from __future__ import annotations

import math
import re

from rltui.cluster.plain_text import plain
from rltui.cluster.queue_facts import QueuedJob
from rltui.cluster.slurm.ids import read_id
from rltui.cluster.slurm.nodes import read_gpus
from rltui.cluster.slurm.queries import QUEUE_FIELDS, nodes_of, places_of
from rltui.cluster.slurm.records import NEVER, read_duration_s, read_time, split_records, whole
from rltui.cluster.slurm.replies import SlurmUnansweredError, Trouble
from rltui.cluster.slurm.states import read_state

_AS_IN_THE_QUEUE = [
    "id",
    "state",
    "reason",
    "uid",
    "user",
    "partition",
    "submit",
    "start",
    "limit",
    "nodes",
    "count",
    "name",
]
FIELDS = {
    "priority": ("PriorityLong", "%Q"),
    "left": ("TimeLeft", "%L"),
    "tres": ("tres-alloc", ""),
    "job": ("tres-per-job", ""),
    "node": ("tres-per-node", "%b"),
    **{word: QUEUE_FIELDS[word] for word in _AS_IN_THE_QUEUE},
}
"""Our word → squeue's for ``--Format`` and for ``--format``, which lacks some."""

OPEN_STATES = "PD,CF,R,RS,S,SI,ST,CG,SO"
"""What waits, and what holds something."""
LONGEST_TEXT = 200
"""Characters of a name or a reason that are kept: users may give jobs names of any length."""

_TRES = re.compile(r"(?:^|,)gres/gpu(?::([\w.-]+))?=([0-9]{1,6})(?=,|$)")


def everybody_argv(mark: str, *, short: bool = False) -> list[str]:
    """The question for all jobs of all users that have not ended.

    Args:
        mark: The end of each field.
        short: Whether to write the fields as a squeue without suffixes in ``--Format`` wants them.
    """
    if short:
        wanted = "--format=" + "".join(f"{field}{mark}" for _, field in FIELDS.values())
    else:
        wanted = "--Format=" + ",".join(f"{field}:{mark}" for field, _ in FIELDS.values())
    return ["squeue", "--local", "--all", f"--states={OPEN_STATES}", "--noheader", wanted]


def read_everybody(text: str, mark: str, uid: str) -> tuple[QueuedJob, ...]:
    """The jobs in an answer of squeue: those that wait, the next one first, then by the time that they have left.

    Args:
        text: The answer.
        mark: The end of each field.
        uid: The user's number, for telling whose jobs are the user's own.

    Raises:
        SlurmUnansweredError: It is not what was asked for.
    """
    rows = [dict(zip(FIELDS, row, strict=True)) for row in split_records(text, mark, len(FIELDS))]
    if any(read_id(row["id"]) is None for row in rows):
        raise SlurmUnansweredError(Trouble("unknown", "the answer of squeue cannot be read"))
    waiting = [(row["id"], row["partition"], whole(row["priority"]) or 0) for row in rows if _waits(row)]
    places = places_of(waiting)
    jobs = []
    for row in rows:
        place = places.get(row["id"]) if _waits(row) else None
        jobs.append(_job(row, uid, place.position if place else None, place.waiting if place else None))
    return tuple(sorted(jobs, key=_order))


def gpus_of(tres: str, per_job: str, per_node: str, nodes: int) -> tuple[str, int | None]:
    """Type and number of the GPUs that a job has or asks for altogether; None where the answer does not tell.

    Args:
        tres: What is allotted or asked for in all, ``cpu=8,gres/gpu=4,gres/gpu:h100=4``; not all sites count GPUs.
        per_job: As ``--gpus`` was given, ``gres:gpu:h100:4``.
        per_node: As ``--gres`` or ``--gpus-per-node`` was.
        nodes: Number of nodes.
    """
    counted = {kind: int(number) for kind, number in _TRES.findall(tres)}
    if counted:
        kind = max((kind for kind in counted if kind), key=lambda one: counted[one], default="")
        return kind, counted.get("", sum(counted.values()))
    for text, times in ((per_job, 1), (per_node, max(1, nodes))):
        kind, number = read_gpus(_as_gres(text))
        if number:
            return kind, number * times
    return "", None if not tres else 0


def _as_gres(text: str) -> str:
    """Generic resources as a node lists them: ``gres/gpu=4``, ``gres:gpu:h100:4`` and ``gpu`` are ways to ask."""
    found = re.sub(r"(?:^|(?<=,))gres[:/]", "", text.strip()).replace("=", ":")
    return re.sub(r"(?:^|(?<=,))gpu(?=,|$)", "gpu:1", found)


def _waits(row: dict[str, str]) -> bool:
    return read_state(row["state"]).state == "pending" and not row["nodes"].strip()


def _order(job: QueuedJob) -> tuple[bool, float, float]:
    if job.waits:
        return False, job.position or math.inf, job.submitted_at
    return True, math.inf if job.left_s is None else job.left_s, job.submitted_at


def _job(row: dict[str, str], uid: str, position: int | None, waiting: int | None) -> QueuedJob:
    waits, state = _waits(row), read_state(row["state"]).state
    count = whole(row["count"].partition("-")[0]) or 0
    kind, gpus = gpus_of(row["tres"], row["job"], row["node"], count)
    return QueuedJob(
        job_id=row["id"],
        state="running" if state == "pending" and not waits else state,  # its nodes boot: they are taken
        user=_text(row["user"]),
        is_mine=row["uid"] == uid,
        name=_text(row["name"]),
        partition=_text(row["partition"]),
        reason="" if row["reason"] in NEVER or not waits else _text(row["reason"]),
        gpus=gpus,
        gpu=_text(kind),
        nodes=() if waits else nodes_of(row["nodes"]),
        node_count=count,
        submitted_at=read_time(row["submit"]),
        expected_start_at=read_time(row["start"]) if waits else 0.0,
        left_s=None if waits else read_duration_s(row["left"]),
        limit_s=read_duration_s(row["limit"]),
        priority=whole(row["priority"]) or 0,
        position=position,
        waiting=waiting,
    )


def _text(text: str) -> str:
    return plain(text[: 4 * LONGEST_TEXT]).strip()[:LONGEST_TEXT]
