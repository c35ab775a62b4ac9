"""What is asked of squeue and sacct: fixed fields in a fixed order; how an answer becomes jobs, an id one job.

No ``--json``: its schema changes from release to release, and 22.05 ignores all filters with it and makes a controller
that is down look like an empty queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rltui.cluster.jobs import ENDED_STATES, JobSnapshot
from rltui.cluster.plain_text import plain
from rltui.cluster.slurm.ids import MARK, base_id, read_id, waiting_tasks
from rltui.cluster.slurm.nodelist import NodeListError, expand
from rltui.cluster.slurm.records import NEVER, read_duration_s, read_time, split_records, whole
from rltui.cluster.slurm.replies import SlurmUnansweredError, Trouble
from rltui.cluster.slurm.states import read_state

QUEUE_FIELDS = {
    "id": ("JobArrayID", "%i"),
    "state": ("State", "%T"),
    "reason": ("Reason", "%r"),
    "uid": ("UserID", "%U"),
    "user": ("UserName", "%u"),
    "partition": ("Partition", "%P"),
    "account": ("Account", "%a"),
    "submit": ("SubmitTime", "%V"),
    "start": ("StartTime", "%S"),
    "end": ("EndTime", "%e"),
    "limit": ("TimeLimit", "%l"),
    "nodes": ("NodeList", "%N"),
    "count": ("NumNodes", "%D"),
    "restarts": ("RestartCnt", ""),
    "status": ("exit_code", ""),
    "name": ("Name", "%j"),
    "comment": ("Comment", "%k"),
}
"""Our word → squeue's for ``--Format`` and for ``--format``, which every release takes but which lacks some."""

ACCOUNTING_FIELDS = {
    "id": "JobID",
    "state": "State",
    "exit": "ExitCode",
    "uid": "UID",
    "user": "User",
    "partition": "Partition",
    "account": "Account",
    "submit": "Submit",
    "start": "Start",
    "end": "End",
    "limit": "Timelimit",
    "nodes": "NodeList",
    "count": "NNodes",
    "name": "JobName",
    "comment": "Comment",
}
"""Our word → sacct's."""

EVERY_STATE = "BF,CA,CD,DL,F,NF,OOM,PD,PR,R,RQ,RS,RV,S,TO"
"""All states that sacct can be asked for, in its short forms."""


def queue_argv(mark: str, *, only: Sequence[str] = (), short: bool = False) -> list[str]:
    """The one question for all jobs of the user, also those that ended within ``MinJobAge`` (300 s by default).

    Args:
        mark: The end of each field.
        only: Ids to ask for instead, whoever owns them.
        short: Whether to write the fields as a squeue without suffixes in ``--Format`` wants them.
    """
    whose = [f"--jobs={','.join(only)}"] if only else ["--me"]
    if short:
        wanted = "--format=" + "".join(f"{field}{mark}" for _, field in QUEUE_FIELDS.values())
    else:
        wanted = "--Format=" + ",".join(f"{field}:{mark}" for field, _ in QUEUE_FIELDS.values())
    # --all: partitions that are hidden from most have jobs too; without --local squeue asks for a federation as well
    return ["squeue", *whose, "--local", "--all", "--states=all", "--noheader", wanted]


def read_queue(text: str, mark: str) -> list[tuple[str, JobSnapshot]]:
    """Return the jobs in an answer of squeue, each with its owner's uid.

    Raises:
        SlurmUnansweredError: It is not what was asked for.
    """
    rows = [dict(zip(QUEUE_FIELDS, row, strict=True)) for row in split_records(text, mark, len(QUEUE_FIELDS))]
    return [(row["uid"], _job(row)) for row in _sound(rows, "squeue")]


def accounting_argv(mark: str, since_s: float, *, only: Sequence[str] = (), user: str = "") -> list[str]:
    """The one question to the accounting database: allocations, not steps, and every requeue of them.

    Without ids or states sacct leaves out what was cancelled before it might have started: held jobs, and those that
    waited for another job or for a time.

    Args:
        mark: The end of each field.
        since_s: How many seconds back it shall look; as a span, so that no clock and no time zone matters.
        only: Ids to ask for.
        user: Whose jobs; root would be given everybody's.
    """
    # not --parsable2, which puts the mark between fields only: the last one of a record would end without
    argv = ["sacct", "--allocations", "--duplicates", "--noheader", "--parsable", f"--delimiter={mark}"]
    argv += [f"--starttime=now-{max(1, int(since_s))}seconds", f"--format={','.join(ACCOUNTING_FIELDS.values())}"]
    argv += [f"--user={user}"] if user else []
    # states count at the end of the span only; the clock of a node that accounts for jobs may be ahead
    which = [f"--jobs={','.join(only)}"] if only else [f"--state={EVERY_STATE}", "--endtime=now+1day"]
    return [*argv, *which]


def read_accounting(text: str, mark: str) -> list[tuple[str, JobSnapshot]]:
    """Return the records in an answer of sacct, each with its owner's uid; a requeued job has several, oldest first.

    Raises:
        SlurmUnansweredError: It is not what was asked for.
    """
    rows = [dict(zip(ACCOUNTING_FIELDS, row, strict=True)) for row in split_records(text, mark, len(ACCOUNTING_FIELDS))]
    found = [(row["uid"], _job(row)) for row in _sound(rows, "sacct")]
    return sorted(found, key=lambda one: one[1].submitted_at)


def pending_argv(mark: str, partitions: Sequence[str]) -> list[str]:
    """The question for the places in the queue: everybody's pending jobs of these partitions, but little of each."""
    names = ",".join(sorted({name for one in partitions for name in one.split(",")}))
    wanted = f"--format=%i{mark}%P{mark}%Q{mark}"
    return ["squeue", "--local", "--all", "--states=PENDING", f"--partition={names}", "--noheader", wanted]


class Place(Struct, frozen=True):
    """A place in a partition's queue."""

    position: int
    """1 is next."""
    waiting: int
    """Jobs that wait in the partition altogether."""


def read_pending(text: str, mark: str) -> dict[str, Place]:
    """Return each pending job's place in its partition's queue; the best one where it waits in several.

    Slurm tries jobs by priority, equal ones by age. Held ones have priority 0 and do not queue.
    """
    found = split_records(text, mark, 3)
    return places_of([(job_id, partitions, _count(priority)) for job_id, partitions, priority in found])


def places_of(waiting: Sequence[tuple[str, str, int]]) -> dict[str, Place]:
    """The place of each pending job, of id, partitions and priority; see ``read_pending``."""
    rows = [row for row in waiting if row[2] > 0 and read_id(row[0])]
    rows.sort(key=lambda row: (-row[2], int(base_id(row[0]))))
    totals = Counter(name for row in rows for name in row[1].split(","))
    lengths: Counter[str] = Counter()
    places: dict[str, Place] = {}
    for job_id, partitions, _ in rows:
        names = partitions.split(",")
        lengths.update(names)
        best = min(names, key=lambda name: lengths[name])
        place = places[job_id] = Place(lengths[best], totals[best])
        places.setdefault(base_id(job_id), place)
    return places


def placed(job: JobSnapshot, place: Place | None) -> JobSnapshot:
    """Return a job with its place in the queue, if it is pending and has one."""
    place = place if job.state == "pending" else None
    return replace(
        job,
        queue_position=place.position if place else None,
        partition_pending=place.waiting if place else None,
    )


def newest(jobs: Sequence[JobSnapshot]) -> dict[str, JobSnapshot]:
    """Return the newest record of each id: requeues keep the id, and after a wrap ids are given out again."""
    return {job.job_id: job for job in sorted(jobs, key=lambda job: job.submitted_at)}


def told_apart(records: Sequence[JobSnapshot]) -> list[JobSnapshot]:
    """Return the records of one job as its attempts, oldest first, numbered; all but the newest are over."""
    ordered = sorted(records, key=lambda job: job.submitted_at)
    attempts = [replace(job, restarts=number) for number, job in enumerate(ordered)]
    return [job if job.has_ended or job is attempts[-1] else replace(job, state="failed") for job in attempts]


def _sound(rows: list[dict[str, str]], tool: str) -> list[dict[str, str]]:
    """Return ``rows`` if all are jobs: where one is not, fields may be shifted, and nothing is to be believed."""
    for row in rows:
        if read_id(row["id"]) is None:
            raise SlurmUnansweredError(Trouble("unknown", f"the answer of {tool} cannot be read"))
    return rows


def _job(row: dict[str, str]) -> JobSnapshot:
    state = read_state(row["state"])
    start, end = read_time(row["start"]), read_time(row["end"])
    # a REQUEUED record of the accounting is a start that is over, though the job itself waits again
    waits = state.state == "pending" and state.word != "REQUEUED"
    is_over = state.state in ENDED_STATES or state.word == "REQUEUED"
    code, signal = read_exit(row["exit"]) if "exit" in row else read_status(row["status"])
    return JobSnapshot(
        job_id=row["id"],
        state=state.state,
        word=state.word,
        cancelled_by=state.cancelled_by,
        name=plain(row["name"]),
        comment="" if row["comment"] in NEVER else plain(row["comment"]).strip(),
        user=plain(row["user"]),
        partition=plain(row["partition"]),
        account=plain(row["account"]),
        reason="" if row.get("reason", "") in NEVER else plain(row["reason"]),
        submitted_at=read_time(row["submit"]),
        expected_start_at=start if waits else 0.0,
        started_at=0.0 if waits else start,
        # of a job that runs it is when its time limit will end it
        ended_at=end if is_over else 0.0,
        time_limit_s=read_duration_s(row["limit"]) or 0.0,
        nodes=nodes_of(row["nodes"]),
        node_count=_count(row["count"]),
        restarts=_count(row.get("restarts", "")),
        exit_code=code if is_over else None,
        signal=signal if is_over else None,
    )


def read_exit(text: str) -> tuple[int | None, int | None]:
    """Return exit code and signal of ``7:0``; None where there is none, or no signal."""
    code, _, signal = text.partition(":")
    return whole(code), whole(signal) or None


def read_status(text: str) -> tuple[int | None, int | None]:
    """Return exit code and signal of squeue's ``exit_code``, which is the status that ``wait`` gave: 1792 is exit 7."""
    status = whole(text)
    # 0x80 says that a core was dumped, and is no part of the signal
    return read_exit(text) if status is None else (status >> 8, (status & 0x7F) or None)


def nodes_of(text: str) -> tuple[str, ...]:
    """The nodes of a list as Slurm writes it; none where it cannot be read."""
    try:
        return expand(text)
    except NodeListError:
        return ()


def _count(text: str) -> int:
    # squeue may write ranges, such as 2-4 nodes
    return whole(text.partition("-")[0]) or 0


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
