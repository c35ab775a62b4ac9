"""Submissions, and changes to jobs. Each looks first whose job it is and where it stands, and is told to Slurm once."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.cluster.cluster import SubmitRefusedError, SubmitUnknownError
from rltui.cluster.plain_text import plain
from rltui.cluster.relay_types import Completed
from rltui.cluster.slurm.ids import is_foreign
from rltui.cluster.slurm.nodelist import NodeListError, expand, fold, merged
from rltui.cluster.slurm.queries import by_id, is_same_job
from rltui.cluster.slurm.records import new_mark, split_records, write_duration
from rltui.cluster.slurm.replies import (
    SlurmRefusedError,
    SlurmUnansweredError,
    read_submission,
    read_trouble,
    telling_line,
)
from rltui.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from rltui.cluster.jobs import JobSnapshot
    from rltui.cluster.slurm.client import SlurmClient


WAIT_STEP_S = 2.0
"""Between two looks at a job that is being requeued."""

ACTIVE = frozenset({"running", "suspended", "completing"})


def cancel(
    client: SlurmClient, job_id: str, uuid: str, known: JobSnapshot | None = None, words: Sequence[str] = ()
) -> bool:
    """End a job, or with ``words`` do to it what these say to scancel; see ``SlurmClient.cancel``."""
    return bool(living(client, job_id, uuid, known)) and _tell(client, ["scancel", *words, job_id])


def living(client: SlurmClient, job_id: str, uuid: str, known: JobSnapshot | None = None) -> list[JobSnapshot]:
    """A job and its parts as they stand; none where all have ended; see ``SlurmClient.living``."""
    rows = client.queue([job_id])
    uid = client.uid()
    if known is not None and any(owner != uid or not is_same_job(known, job) for owner, job in rows):
        return []
    if uuid and any(owner != uid or is_foreign(job, uuid) for owner, job in rows):
        return []
    return [job for job in _own(client, job_id, rows) if not job.has_ended]


def control(client: SlurmClient, job_id: str, words: Sequence[str]) -> None:
    """Run ``scontrol WORDS JOB`` on an own job that has not ended."""
    standing(client, job_id)
    if not _tell(client, ["scontrol", *words, job_id]):
        raise _ended(job_id)


def requeue(client: SlurmClient, job_id: str) -> None:
    """Queue a running job again."""
    # Slurm would run an ended job once more without a question, and a second checkpoint writer is no requeue
    if standing(client, job_id).state not in ACTIVE:
        raise SlurmRefusedError(
            f"Job {job_id} is not running, so it cannot be requeued.", "A pending job starts anyway."
        )
    if not _tell(client, ["scontrol", "requeue", job_id]):
        raise _ended(job_id)


def requeue_without(client: SlurmClient, job_id: str, nodes: Sequence[str], deadline_s: float) -> None:
    """Hold, wait until it is pending, exclude, release: only a pending job's list can be changed.

    Where it breaks off in between, the job is held, and calling it again goes on.
    """
    if standing(client, job_id).state in ACTIVE and not _tell(client, ["scontrol", "requeuehold", job_id]):
        raise _ended(job_id)
    deadline = time.monotonic() + deadline_s
    while standing(client, job_id).state != "pending":
        if time.monotonic() >= deadline:
            raise SlurmUnansweredError(
                read_trouble("", 0, "scontrol"),
                f"Job {job_id} was told to requeue but is not pending after {deadline_s:.0f} s; it is or will be held.",
            )
        time.sleep(WAIT_STEP_S)
    add_excluded(client, job_id, nodes)
    control(client, job_id, ["release"])


LONGEST = "Users cannot raise the limit of a running job, nor any beyond its partition's: resubmit it, or ask the site."


def set_time_limit(client: SlurmClient, job_id: str, seconds: float) -> None:
    """Change a job's time limit."""
    try:
        limit = write_duration(seconds)
    except ValueError as error:
        raise UsageError(f"{error}.") from error
    try:
        _update(client, job_id, f"TimeLimit={limit}")
    except SlurmRefusedError as error:
        if "denied" not in error.message.lower():
            raise
        raise SlurmRefusedError(error.message, LONGEST) from error


def excluded(client: SlurmClient, job_id: str) -> tuple[str, ...]:
    """The nodes that a job keeps away from."""
    mark = new_mark()
    argv = [
        "squeue",
        f"--jobs={job_id}",
        "--local",
        "--all",
        "--states=all",
        "--noheader",
        f"--format=%i{mark}%x{mark}",
    ]
    rows = split_records(client.runner.ask(argv), mark, 2)
    return expand(rows[0][1]) if rows else ()


def add_excluded(client: SlurmClient, job_id: str, nodes: Sequence[str]) -> tuple[str, ...]:
    """Let a pending job keep away from more nodes. Slurm replaces the list, so it is read, merged and written."""
    wanted = merged(excluded(client, job_id), nodes)
    _update(client, job_id, f"ExcNodeList={fold(wanted)}")
    return wanted


def standing(client: SlurmClient, job_id: str) -> JobSnapshot:
    """An own job that has not ended; a het job as one, which waits only where all of its components do.

    Raises:
        SlurmRefusedError: There is none with this id.
    """
    job = by_id(_own(client, job_id, client.queue([job_id]))).get(job_id)
    if job is None or job.has_ended:
        raise _ended(job_id)
    return job


def _own(client: SlurmClient, job_id: str, rows: Sequence[tuple[str, JobSnapshot]]) -> list[JobSnapshot]:
    uid = client.uid()
    for owner, job in rows:
        if owner != uid:
            raise SlurmRefusedError(f"Job {job_id} is {job.user}'s, not yours.", "rltui changes your own jobs only.")
    return [job for _, job in rows]


def _update(client: SlurmClient, job_id: str, change: str) -> None:
    standing(client, job_id)
    if not _tell(client, ["scontrol", "update", f"JobId={job_id}", change]):
        raise _ended(job_id)


def _tell(client: SlurmClient, argv: Sequence[str]) -> bool:
    """Whether Slurm did it; False where the job is gone."""
    answer = client.runner.tell(argv)
    if answer.rc == 0:
        return True
    trouble = read_trouble(answer.err or answer.out, answer.rc, argv[0])
    if trouble.kind == "gone":
        return False
    if trouble.nothing_done:
        raise SlurmRefusedError(f"Slurm did not do it: {trouble.sentence}.", trouble.hint)
    raise SlurmUnansweredError(trouble, f"It is unknown whether Slurm did it: {trouble.sentence}.")


def _ended(job_id: str) -> SlurmRefusedError:
    return SlurmRefusedError(f"Job {job_id} has ended, or Slurm does not know it any more.")


LOOK_IT_UP = "rltui looks for the job by its mark; it is not submitted a second time."

_MAY_WAIT = re.compile(r"not available \(down|nodes are busy|temporarily unavailable|required node not available", re.I)
_START = re.compile(
    r"Job \d+ to start at (\S+) using (\d+) processors on (?:nodes (\S+) in partition (\S+)|(\S+))"  # of a het job
)


SHAPE = (
    *("SBATCH_EXCLUSIVE", "SBATCH_OVERCOMMIT", "SBATCH_CPUS_PER_GPU", "SBATCH_GRES", "SBATCH_GPUS"),
    *("SBATCH_GPUS_PER_NODE", "SBATCH_GPUS_PER_SOCKET", "SBATCH_GPUS_PER_TASK", "SBATCH_TRES_PER_TASK", "SBATCH_ERROR"),
)
"""Variables that would give the job another shape than the script's or its errors another file, which it never asks."""

_MEMORY = ("SBATCH_MEM_PER_NODE", "SBATCH_MEM_PER_CPU", "SBATCH_MEM_PER_GPU")
OTHERWISE_CALLED = {
    "time": ("SBATCH_TIMELIMIT",),
    "requeue": ("SBATCH_NO_REQUEUE",),
    "no-requeue": ("SBATCH_REQUEUE",),
    "mem": _MEMORY,
    "mem-per-gpu": _MEMORY,
}
"""Options whose variables are not named like them, or that other options' variables would undo."""

_DIRECTIVE = re.compile(r"(?m)^#SBATCH --([a-z][a-z-]*)")


class TestVerdict(Struct, frozen=True):
    """What Slurm would do with a script."""

    __test__ = False

    accepted: bool
    sentence: str
    """Its own words: why not, or when and where."""
    start: str = ""
    """The expected start in the cluster's own time, as Slurm wrote it."""
    nodes: tuple[str, ...] = ()
    partition: str = ""
    is_certain: bool = True
    """Whether a real submission would be refused too: nodes that are down or taken only make it wait."""


def submit_argv(script: str, *, job_name: str, comment: str, chdir: str, extra: Sequence[str]) -> list[str]:
    """The command that submits ``script``.

    Raises:
        UsageError: The script's path is not absolute (it could be read as an option), or a word holds a NUL.
    """
    named = {"--job-name": job_name, "--comment": comment, "--chdir": chdir}
    argv = ["sbatch", "--parsable", *(f"{option}={value}" for option, value in named.items() if value), *extra, script]
    if not script.startswith("/"):
        raise UsageError(f"The path of the job script, {plain(script)[:80]!r}, is not absolute.")
    if any("\0" in word for word in argv):
        raise UsageError("A NUL is in what sbatch was to be told.")
    return argv


def variables_against(script: str) -> list[str]:
    """Variables that would win over what ``script`` says itself: for sbatch the environment beats ``#SBATCH`` lines.

    A default of the user's for what the script leaves open (an account, a reservation) stays.
    """
    options = dict.fromkeys(_DIRECTIVE.findall(script))
    named = [f"SBATCH_{option.replace('-', '_').upper()}" for option in options]
    return [*SHAPE, *named, *(name for option in options for name in OTHERWISE_CALLED.get(option, ()))]


def read_answer(answer: Completed) -> str:
    """Return the id in sbatch's answer.

    Raises:
        SubmitRefusedError: It certainly did not submit.
        SubmitUnknownError: Nobody can tell.
    """
    job_id = read_submission(answer.out)
    if job_id is not None and answer.rc == 0:
        return job_id
    if job_id is not None:
        raise SubmitUnknownError(f"sbatch named job {job_id} but ended with status {answer.rc}.", LOOK_IT_UP)
    if answer.rc == 0:
        said = telling_line(answer.out + "\n" + answer.err)
        raise SubmitUnknownError(f"sbatch ended well but named no job: {said or 'it said nothing'}.", LOOK_IT_UP)
    trouble = read_trouble(answer.err or answer.out, answer.rc, "sbatch")
    if trouble.nothing_done:
        refused = SubmitRefusedError(f"Slurm did not take the job: {trouble.sentence}.", trouble.hint)
        if trouble.kind == "controller":
            refused.exit_code = ClusterError.exit_code
        raise refused
    raise SubmitUnknownError(f"It is unknown whether Slurm took the job: {trouble.sentence}.", LOOK_IT_UP)


def read_test(answer: Completed) -> TestVerdict:
    """Understand the answer to ``--test-only``."""
    text = plain(answer.err + " " + answer.out)
    match = _START.search(text)
    if answer.rc or match is None:
        trouble = read_trouble(answer.err or answer.out, answer.rc, "sbatch")
        is_certain = trouble.kind == "refused" and not _MAY_WAIT.search(text)
        return TestVerdict(False, trouble.sentence, is_certain=is_certain)
    try:
        nodes = expand(match[3] or match[5])
    except NodeListError:
        nodes = ()
    return TestVerdict(True, match[0], match[1], nodes, match[4] or "")
