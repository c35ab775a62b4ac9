"""How far a run is: elapsed time, time to go, and the words of its state. Pure functions over one summary."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rltui.onnode.rundir import STAGES
from rltui.watch.pending import held_words, pending_words, waiting_job
from rltui.watch.silence import no_step_words
from rltui.watch.snapshots import MetricsSnapshot, RunSummary

STAGE_RAIL = tuple(stage for stage in STAGES if stage != "saving")
"""Stages as drawn; saving alternates with training and is drawn in its place."""

RECENT_STEPS = 20
"""Steps whose median time gives the time to go."""


def reached(summary: RunSummary) -> dict[str, float]:
    """Stage → time at which the attempt reached it, as ``stage.json`` tells."""
    times = {str(entry.get("stage", "")): float(entry.get("at", 0.0) or 0.0) for entry in summary.stage.history}
    times.setdefault(summary.stage.stage, summary.stage.since)
    return times


def stage_shown(summary: RunSummary) -> str:
    """The stage of the rail at which the attempt stands, or stood when it ended.

    Of one that waits only the scheduler knows: its files are of a start that is over, or say that it was submitted.
    """
    stage = "queued" if summary.state == "queued" else summary.stage.stage
    if stage == "ended" and not (summary.end is not None and summary.end.outcome == "finished"):
        known = [name for name in STAGE_RAIL[:-1] if name in reached(summary)]
        stage = known[-1] if known else "submitted"
    return "training" if stage == "saving" else stage


def rail_of(summary: RunSummary) -> tuple[str, ...]:
    """The stages of a run; of one that rltui did not start those that it was seen in, and its end."""
    if not summary.is_adopted:
        return STAGE_RAIL
    seen = {*reached(summary), stage_shown(summary), "ended"}
    return tuple(stage for stage in STAGE_RAIL if stage in seen)


def elapsed_s(summary: RunSummary, now: float) -> float | None:
    """Seconds from submission to the end, or to ``now`` while the run lives."""
    started = min((at for at in reached(summary).values() if at > 0), default=summary.created_at)
    until = summary.end.at if summary.end is not None and summary.end.at else summary.stage.updated
    if summary.is_live:
        until = max(until, now)
    return max(0.0, until - started) if until and started else None


def step_share(summary: RunSummary) -> float | None:
    """Fraction of all steps that are done, or None where steps are unknown."""
    step, steps = summary.stage.step, summary.stage.steps
    return None if step is None or not steps else min(1.0, step / steps)


def remaining_s(summary: RunSummary, metrics: MetricsSnapshot, now: float) -> float | None:
    """Seconds until the last step at the recent pace; None while that cannot be told.

    Args:
        summary: The run; only one that trains has a time to go.
        metrics: Its series; the median of ``time/total`` over the recent steps is the pace where there is one,
            else the mean since training began.
        now: Seconds since the epoch by the clock of the snapshot.
    """
    step, steps = summary.stage.step, summary.stage.steps
    if summary.state != "running" or step is None or not steps or step >= steps:
        return None
    recent = [value for value in metrics.series.get("time/total", ())[-RECENT_STEPS:] if math.isfinite(value)]
    if recent:
        return middle(recent) * (steps - step)
    began = reached(summary).get("training", 0.0)
    return (now - began) / step * (steps - step) if began and step > 0 and now > began else None


def middle(values: Sequence[float]) -> float:
    """The middle one of some values, the upper one of two; the statistics module would cost 3 ms at start-up."""
    return sorted(values)[len(values) // 2]


def state_word(summary: RunSummary, word: str) -> str:
    """The word for a run's state: its stage while it starts or runs, which says more."""
    return summary.stage.stage if summary.state in ("starting", "running") else word


def state_detail(summary: RunSummary, now: float = 0.0) -> str:
    """What to say behind the word of the state: a verdict for an ended run, why one waits, or the stage's own words.

    Args:
        summary: The run.
        now: Epoch seconds by the cluster's clock; 0: when the stage was last written.
    """
    if summary.unfinished:
        return summary.unfinished
    if summary.end is not None and not summary.is_live:
        archived = "archived" if summary.archived else ""
        held = held_words(summary, now or summary.stage.updated)
        return "  ".join(part for part in (archived, held, summary.failure, end_words(summary)) if part)
    job = waiting_job(summary)
    if job is not None:
        return pending_words(job, now or summary.stage.updated)
    if summary.state == "failed" or summary.state == "lost":
        return summary.failure
    return "  ".join(filter(None, (summary.symptom, no_step_words(summary) or summary.stage.detail)))


def end_words(summary: RunSummary) -> str:
    """How a run ended, in its own words."""
    end, step = summary.end, summary.stage.step
    if end is None:
        return ""
    if end.outcome == "finished":
        return f"{step} step{'s' * (step != 1)}" if step is not None else ""
    if end.outcome == "cancelled":
        return end.reason or (f"at step {step}" if step else "")
    code = f"exit {end.exit_code}" if end.exit_code else ""
    return end.reason or code
