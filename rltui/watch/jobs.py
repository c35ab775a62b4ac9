"""What a run on a scheduler is at: the files of its attempt and the scheduler's word on its job, put together.

Neither is enough. Files say how far it is, but not that their node died; the scheduler knows that it runs, but not
whether it trains, and forgets ended jobs in minutes. The two have different clocks, so no times are compared: a number
tells which start of a job (Slurm requeues under the same id) a file belongs to.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from rltui.cluster.jobs import AllocationShare, JobSnapshot
from rltui.cluster.slurm.reasons import explain_reason
from rltui.watch.run_facts import fold_state
from rltui.watch.snapshots import EndSnapshot, RunState, StageSnapshot


class JobFacts(Struct, frozen=True, kw_only=True):
    """A run on a scheduler, for people."""

    state: RunState
    sentence: str = ""
    """Why it waits or how it ended; empty where there is nothing to say."""
    next_step: str = ""
    starts_by_itself: bool = True
    """False where it waits for something that will not come by itself."""


class _Ending(Struct, frozen=True):
    sentence: str
    next_step: str = ""


_RESUME = "Resubmit it: it goes on from the newest complete checkpoint."
ENDINGS = {
    "ALLOCATION_ENDED": _Ending("The allocation that it ran in ended.", _RESUME),
    "ALLOCATION_REQUEUED": _Ending("Slurm queued the allocation that it ran in again, without this run.", _RESUME),
    "BOOT_FAIL": _Ending("A node of the job did not boot.", "Exclude the node and resubmit."),
    "CANCELLED": _Ending("The job was cancelled."),
    "DEADLINE": _Ending("The job did not end before its deadline."),
    "FAILED": _Ending("The job script failed before it could say why.", "Look at its output: slurm-{job}.out."),
    "LAUNCH_FAILED": _Ending("The job could not be launched on its node.", "Exclude the node and resubmit."),
    "NODE_FAIL": _Ending("A node of the job failed, and with it the job.", "Exclude the node and resubmit."),
    "OUT_OF_MEMORY": _Ending("The job used more main memory than it had asked for.", "Ask for more, then resubmit."),
    "PREEMPTED": _Ending("The job was preempted by one of higher priority.", _RESUME),
    "STOPPED": _Ending("The job was cancelled."),  # Ray's word
    "REVOKED": _Ending("The job was started on another cluster of the federation."),
    "TIMEOUT": _Ending("The job reached its time limit before it had saved and ended.", _RESUME),
}
"""What Slurm's words for an end mean where the run itself left none."""

NO_FOLDER = 53
"""The "signal" of a batch step whose output file or working directory is not there (exit code 0:53)."""

_SILENT = _Ending("Slurm says that the job completed, but the run left no word of its end.", "Look at its log.")
_VANISHED = _Ending(
    "The scheduler does not know the job any more, and the run left no word of its end.", "Look at its log."
)


def job_facts(
    stage: StageSnapshot | None,
    end: EndSnapshot | None,
    job: JobSnapshot | None,
    start: int | None = None,
    *,
    is_adopted: bool = False,
) -> JobFacts:
    """Put together what is known of a run's newest attempt.

    Args:
        stage: Where the attempt says it stands; None where it has not said.
        end: How it says it ended; None where it has not.
        job: The scheduler's word; None where it does not know the job, or was not asked.
        start: Which start of the job (0 is the first) the attempt's files are of; None where that is not known.
        is_adopted: Whether rltui did not start it, so that the scheduler's word is all there is of its end.
    """
    if job is None:
        return JobFacts(state=fold_state(stage, end, None))
    if has_moved_on(job, start):
        # the files are those of a start that is over; its next one has written nothing yet
        stage, end = None, None
    if end is not None:
        return JobFacts(state=fold_state(stage, end, None), sentence=end.reason)
    if job.state == "pending" and _has_not_begun(stage):
        return _waiting(job)
    if job.has_ended or job.state == "unknown":
        return _ended(job, is_adopted=is_adopted)
    return JobFacts(state=_running(stage, job), sentence=_pause(job))


def of_share(job: JobSnapshot, share: AllocationShare, began_at: float | None) -> JobSnapshot:
    """What an allocation's ``job`` means for a run that has a share of it: its nodes, its time, its end.

    Args:
        job: The allocation.
        share: What the run has of it.
        began_at: When the run began, epoch seconds; None where it has not.
    """
    later_s = max(0.0, began_at - job.started_at) if began_at and job.started_at else 0.0
    own = replace(
        job,
        nodes=share.nodes,
        node_count=len(share.nodes),
        restarts=0,
        started_at=job.started_at + later_s,
        time_limit_s=max(0.0, job.time_limit_s - later_s),
    )
    if job.restarts > share.restarts or job.state == "pending":
        return replace(own, state="cancelled", word="ALLOCATION_REQUEUED")
    return replace(own, state="cancelled", word="ALLOCATION_ENDED") if job.state == "completed" else own


def last_word(job: JobSnapshot, *, is_adopted: bool = False) -> EndSnapshot:
    """The end of an attempt that left no word of its own, as its ended job tells it: what ``job_facts`` shows."""
    facts = _ended(job, is_adopted=is_adopted)
    outcome = facts.state if facts.state in ("finished", "failed", "cancelled") else "lost"
    return EndSnapshot(outcome=outcome, reason=in_words(facts), at=job.ended_at)


def in_words(facts: JobFacts) -> str:
    """Why it waits or how it ended, and what to do."""
    return " ".join(filter(None, (facts.sentence, facts.next_step)))


def has_moved_on(job: JobSnapshot, start: int | None) -> bool:
    """Whether the job has been started again, or was queued for it, since the files of its ``start`` were written."""
    if start is None:
        # one that never started again waits by an old word only, if its files tell of a start: Ray's jobs start once
        return job.state == "pending" and job.restarts > 0
    # Slurm counts a start as soon as a job is requeued: one of the same number has begun since Slurm was asked
    return job.restarts > start or _ended_waiting(job)


def _ended_waiting(job: JobSnapshot) -> bool:
    """Whether its record is of a wait that no start ended: the accounting does not say how often it had started."""
    return job.state in ("cancelled", "failed") and not job.started_at and not job.nodes


def _waiting(job: JobSnapshot) -> JobFacts:
    reason = explain_reason(job.reason, job.run_id)
    again = f"Requeued {job.restarts}×. " if job.restarts else ""
    return JobFacts(
        state="queued",
        sentence=again + reason.sentence,
        next_step=reason.next_step,
        starts_by_itself=reason.starts_by_itself,
    )


def _running(stage: StageSnapshot | None, job: JobSnapshot) -> RunState:
    if job.state == "completing":
        return "stopping"
    # the scheduler has started it, whatever the last word of its files is
    return "starting" if _has_not_begun(stage) else fold_state(stage, None, None)


def _has_not_begun(stage: StageSnapshot | None) -> bool:
    return fold_state(stage, None, None) in ("queued", "unknown")


def _pause(job: JobSnapshot) -> str:
    if job.state == "suspended":
        return "The scheduler has suspended the job: its processes stand still."
    return f"Requeued {job.restarts}×." if job.restarts else ""


def _ended(job: JobSnapshot, *, is_adopted: bool) -> JobFacts:
    if job.state == "completed" and is_adopted:
        return JobFacts(state="finished", sentence="The job completed.")
    if job.state in ("unknown", "completed"):
        silent = _VANISHED if job.state == "unknown" else _SILENT
        return JobFacts(state="unknown", sentence=silent.sentence, next_step=silent.next_step)
    ending = (
        (_Ending(f"Ray says: {job.ending}", "Look at its log.") if job.ending else None)
        or _never_ran(job)
        or _node_failure(job)
        or ENDINGS.get(job.word, _Ending(f"The scheduler ended the job: {job.word or job.state}."))
    )
    state: RunState = "cancelled" if job.state == "cancelled" else "failed"
    return JobFacts(
        state=state, sentence=ending.sentence + _status(job), next_step=ending.next_step.replace("{job}", job.job_id)
    )


def _node_failure(job: JobSnapshot) -> _Ending | None:
    if job.word != "NODE_FAIL" or not job.failed_nodes:
        return None
    names = ", ".join(job.failed_nodes)
    return _Ending(f"Node failure on {names} ended the job.", f"Exclude {names} and resubmit.")


def _never_ran(job: JobSnapshot) -> _Ending | None:
    """Why a job failed without having run a line: Slurm keeps records of some refusals, too."""
    if job.word != "FAILED":
        return None
    if job.signal == NO_FOLDER:
        return _Ending("Slurm could not write the job's output file or enter its folder.", "Is it there on the nodes?")
    if job.nodes or job.reason in ("", "NonZeroExitCode"):
        return None
    reason = explain_reason(job.reason, job.run_id)
    return _Ending(f"Slurm never started the job: {reason.sentence}", reason.next_step)


def _status(job: JobSnapshot) -> str:
    if job.word != "FAILED" or job.ending or _never_ran(job):
        return ""
    if job.signal:
        return f" It was ended by signal {job.signal}."
    if job.exit_code:
        return f" Its exit code is {job.exit_code}."
    return ""
