"""Why a job waits and for how long, in plain words: the same in lists, on screens and in the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltui.cluster.jobs import JobSnapshot
    from rltui.watch.snapshots import RunSummary

WAITING_STATES = frozenset({"pending", "suspended"})


def waiting_job(run: RunSummary) -> JobSnapshot | None:
    """The job of a run that waits for the scheduler; None where there is none, or it does not wait."""
    job = run.job
    return job if job is not None and job.state in WAITING_STATES and run.state in ("queued", "unknown") else None


def held_words(run: RunSummary, now: float) -> str:
    """That hands-off mode waits before it starts the next attempt of a run that has ended; empty where it does not."""
    return run.held_back.in_words(run.attempt, now) if run.held_back is not None and not run.is_live else ""


def reason_words(job: JobSnapshot) -> str:
    """Why it waits, in plain words; where it will not start by itself, what to do about that too."""
    if not job.reason:
        return ""
    if job.held_back and job.reason == "BeginTime":
        return f"Hands-off mode holds it {job.held_back}."
    from rltui.cluster.slurm.reasons import explain_reason

    reason = explain_reason(job.reason, job.run_id)
    helps = not reason.starts_by_itself or "`rltui" in reason.next_step
    return f"{reason.sentence} {reason.next_step}".strip() if helps else reason.sentence


def is_stuck(job: JobSnapshot) -> bool:
    """Whether a job that waits will not start unless somebody does something."""
    if not job.reason:
        return False
    from rltui.cluster.slurm.reasons import explain_reason

    return not explain_reason(job.reason).starts_by_itself


def pending_words(job: JobSnapshot, now: float) -> str:
    """Position, expected start and reason in one short line, as far as the scheduler tells.

    Args:
        job: A job that waits.
        now: Epoch seconds by the scheduler's clock.
    """
    facts = []
    if not is_stuck(job):  # else its place in the line, and when it might start, mean nothing
        if job.queue_position is not None:
            facts.append(f"#{job.queue_position} in line")
        if job.expected_start_at:
            facts.append(start_words(job.expected_start_at - now))
    sentences = [", ".join(facts), reason_words(job)]
    return ": ".join(sentence.rstrip(".") for sentence in sentences if sentence)


def pending_short(job: JobSnapshot, now: float) -> str:
    """As ``pending_words`` in few characters: ``#31 ~2h10 Priority``, with the scheduler's own word."""
    words = [f"#{job.queue_position}"] if job.queue_position is not None else []
    if job.expected_start_at > now:
        words.append(f"~{span_words(job.expected_start_at - now)}")
    return " ".join([*words, job.reason] if job.reason else words)


def start_words(seconds: float) -> str:
    """``starts in ~2h10``; a time that has passed is a guess that did not come true."""
    if seconds < 60:
        return "should start now"
    return f"starts in ~{span_words(seconds)}"


def span_words(seconds: float) -> str:
    """``12 min``, ``2h10``, ``3 days``."""
    minutes = int(seconds) // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours}h{rest:02d}" if hours < 48 else f"{hours // 24} days"
