"""Numbers and states in words, the same in every verb."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rltui.service.run_columns import COLUMNS, MISSING, shape_of
from rltui.watch.pending import held_words, pending_words, waiting_job
from rltui.watch.silence import no_step_words

if TYPE_CHECKING:
    from rltui.cluster.jobs import JobSnapshot
    from rltui.watch.snapshots import RunSummary

GLYPHS = {
    "queued": "◷", "starting": "◷", "running": "▶", "stopping": "▶", "finished": "✓",
    "failed": "✗", "cancelled": "■", "lost": "✗", "unknown": "?",
}  # fmt: skip


def state(run: RunSummary) -> str:
    """Glyph and word of a run's state, such as ``▶ running``."""
    return f"{GLYPHS[run.state]} {run.state}"


def step(run: RunSummary) -> str:
    """Step and all steps, ``412/2000``; a dash where nobody has told."""
    if run.stage.steps:
        return f"{run.stage.step or 0}/{run.stage.steps}"
    return "–" if run.stage.step is None else str(run.stage.step)


def rate(value: float | None) -> str:
    """Tokens a second in few digits, ``38.1k``; a dash where nobody has told."""
    if value is None:
        return "–"
    return f"{value / 1000:.1f}k" if value >= 1000 else f"{value:.0f}"


def number(value: float | None) -> str:
    """Three decimals, or a dash."""
    return "–" if value is None else f"{value:.3f}"


def age(since: float) -> str:
    """``2h14`` since ``since`` (epoch seconds)."""
    minutes = max(0, int(time.time() - since)) // 60
    if minutes >= 60 * 48:
        return f"{minutes // 1440}d"
    return f"{minutes // 60}h{minutes % 60:02d}" if minutes >= 60 else f"{minutes}min"


def moment(at: float) -> str:
    """``2026-11-23 06:28`` by the clock here, or a dash."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) if at > 0 else MISSING


def trend(run: RunSummary) -> str:
    """The first and the last of the latest rates, or a dash."""
    rates = run.tokens_per_second_history
    return f"{rate(rates[0])}→{rate(rates[-1])}" if rates else MISSING


CELLS: dict[str, Callable[[RunSummary], str]] = {
    "state": state,
    "shape": shape_of,
    "step": step,
    "tok/s": lambda run: rate(run.tokens_per_second),
    "trend": trend,
    "reward": lambda run: number(run.reward),
    "age": lambda run: age(run.created_at),
    "started": lambda run: moment(run.created_at),
    "ended": lambda run: moment(run.end.at) if run.end is not None else MISSING,
}
"""The word of a column of the list of runs → what the shell writes in it, where that is its own."""


def cell(word: str, run: RunSummary) -> str:
    """What stands in a column of the list of runs.

    Args:
        word: Of ``rltui.service.run_columns``, or ``state`` or ``about``.
        run: The run.
    """
    if word == "about":
        return about(run)
    text = COLUMNS[word].text if word in COLUMNS else None
    return text(run, time.time()) if text is not None else CELLS[word](run)


def about(run: RunSummary) -> str:
    """What is worth saying of the run in a line: why it ended, what it waits for, or its stage."""
    text = _about(run)
    if run.as_of:
        return f"{text} (as of {age(run.as_of)} ago)"
    return f"{text} (the scheduler's word is {age(run.job_as_of)} old)" if run.job_as_of else text


def _about(run: RunSummary) -> str:
    if run.submission:
        return f"submission unknown: {run.submission}"
    if run.unfinished:
        return run.unfinished
    if run.end is not None:
        said = f"{run.failure}: {run.end.reason}" if run.failure else run.end.reason
        return "; ".join(filter(None, ("archived" if run.archived else "", said, held_words(run, time.time()))))
    if (job := waiting_job(run)) is not None:
        return waiting(job)
    if run.job is not None and run.job.has_ended and run.scheduler_says:
        return f"{run.failure}: {run.scheduler_says}" if run.failure else run.scheduler_says
    if run.failure:
        return run.failure
    if run.no_step_s:
        return f"{run.stage.stage}: {', '.join(filter(None, (run.symptom, no_step_words(run))))}"
    if run.through and run.state == "unknown":
        return f"cluster {run.cluster} knows whether it waits or runs"
    said = ", ".join(filter(None, (run.stage.detail, run.symptom)))
    return f"{run.stage.stage}{': ' + said if said else ''}"


def waiting(job: JobSnapshot) -> str:
    """Why a job waits and for how long, as the screens say it."""
    return pending_words(job, time.time()) or "the scheduler has not said why"
