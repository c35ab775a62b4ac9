"""``rltui history``: where a run's time went: attempts, queues, goodput, what each loss cost."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from rltui.cli.output import answer, columns
from rltui.cli.run_picture import add_arguments as add_arguments
from rltui.service.all_clusters import open_run
from rltui.service.history import read_history
from rltui.watch.history import loss_words
from rltui.watch.snapshots import AttemptHistory, RunHistory

HEADER = ("#", "STARTED", "QUEUED", "HELD", "START-UP", "KEPT", "AGAIN", "BETWEEN", "AFTER", "STEPS", "END")


def run(options: argparse.Namespace) -> int:
    """Print where the time of a run went, over all its attempts: goodput, and what each loss cost."""
    with open_run(options.cluster, options.run) as (context, summary):
        history = read_history(context, summary)
    rows = [_row(one) for one in history.attempts]
    lines = [*_sums(summary.run_id, history), "", *columns(HEADER, rows, frozenset(range(9)))] if rows else []
    nothing = f"{summary.run_id} is {summary.state}: nothing is known of an attempt yet."
    answer(options, {"run_id": summary.run_id, "history": history}, lines, nothing)
    return 0


def _sums(run_id: str, history: RunHistory) -> Iterator[str]:
    unit = f"{history.unit} hours"
    if history.held_h is None or history.kept_h is None:
        yield f"{run_id}: where its time went is not known"
    else:
        share = f"goodput {history.goodput:.0%}, " if history.goodput is not None else ""
        yield f"{run_id}: {share}{_hours(history.kept_h)} of {_hours(history.held_h)} {unit} in steps that count"
        parts = {"overhead": history.overhead_h or 0.0, "under way": history.under_way_h or 0.0}
        parts |= {loss_words(cause): part for cause, part in history.lost_h.items()}
        yield from (f"  {_hours(part):>8}  {name}" for name, part in parts.items() if part)
    if history.queue_s is not None:
        yield f"waited {_span(history.queue_s)} in queues"
    if history.unknown:
        yield f"in no sum, as their times are not known: attempts {', '.join(map(str, history.unknown))}"


def _row(one: AttemptHistory) -> tuple[str, ...]:
    steps = f"{one.first_step}–{one.last_step}" if one.steps else ""
    parts = (one.queue_s, one.held_s, one.start_up_s, one.kept_s, one.overtaken_s, one.between_s, one.tail_s)
    end = one.cause or one.outcome
    return (
        str(one.number),
        time.strftime("%m-%d %H:%M", time.localtime(one.started_at)) if one.started_at else "",
        *(_span(part) for part in parts),
        steps + (f" ({one.overtaken_steps} again)" if one.overtaken_steps else ""),
        end + (f": {one.reason}" if one.reason and one.reason != end else ""),
    )


def _hours(hours: float) -> str:
    return f"{hours:.1f}" if hours >= 1 else f"{hours:.3f}"


def _span(seconds: float | None) -> str:
    """``2h14``, ``3m05``, ``12s``; empty where it is not known."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60}h{minutes % 60:02d}"
    return f"{minutes}m{rest:02d}" if minutes else f"{rest}s"
