"""Runs side by side: the settings in which they differ, and their numbers at the same step."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rltui.layout.diff import differing
from rltui.service.config import read_work, settings_of
from rltui.service.describe import attempt_path
from rltui.service.history import read_history
from rltui.watch.run_watcher import RunWatcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.service.context import Context
    from rltui.watch.snapshots import MetricsSnapshot, RunHistory, RunSummary

WINDOW = 10
"""Points that a metric is the median of: one step of RL says little."""


class Side(Struct, frozen=True, kw_only=True):
    """One of the runs."""

    run_id: str
    state: str
    settings: dict[str, Any]
    """All keys of its layout, defaults filled in, or of its script's job, by dotted name."""
    metrics: MetricsSnapshot
    history: RunHistory


class Row(Struct, frozen=True, kw_only=True):
    """A setting or a metric with its value in each run; None where a run has none."""

    name: str
    values: tuple[Any, ...]


class Comparison(Struct, frozen=True, kw_only=True):
    """Runs side by side, in the order in which they were named."""

    runs: tuple[str, ...]
    settings: tuple[Row, ...]
    """Those that are not the same in all runs."""
    step: int | None
    """The last step that all of them have; None: there is none."""
    metrics: tuple[Row, ...]
    """Medians of at most ``WINDOW`` points up to ``step``."""
    totals: tuple[Row, ...]
    """Of each run as a whole."""


def read_side(context: Context, run: RunSummary) -> Side:
    """Read what a comparison needs of ``run``.

    Raises:
        LayoutError: Its layout is not one that this version reads.
        ClusterError: The cluster cannot be reached.
    """
    client, path = context.cluster.client, attempt_path(run)
    return Side(
        run_id=run.run_id,
        state=run.state,
        settings=settings_of(read_work(client, path)),
        metrics=RunWatcher(client, run.path).snapshot().metrics,
        history=read_history(context, run),
    )


def compare(sides: Sequence[Side]) -> Comparison:
    """Put ``sides`` beside each other."""
    step = last_common_step([side.metrics for side in sides])
    names = sorted({name for side in sides for name in side.metrics.series})
    metrics = [Row(name=name, values=tuple(_median_at(side.metrics, name, step) for side in sides)) for name in names]
    totals: dict[str, list[Any]] = {
        "state": [side.state for side in sides],
        "last step": [side.metrics.steps[-1] if side.metrics.steps else None for side in sides],
        "attempts": [len(side.history.attempts) for side in sides],
        "hours held": [side.history.held_h for side in sides],
        "goodput": [side.history.goodput for side in sides],
    }
    return Comparison(
        runs=tuple(side.run_id for side in sides),
        settings=tuple(Row(name=key, values=values) for key, values in differing([side.settings for side in sides])),
        step=step,
        metrics=tuple(row for row in metrics if any(value is not None for value in row.values)),
        totals=tuple(Row(name=name, values=tuple(values)) for name, values in totals.items()),
    )


def last_common_step(metrics: Sequence[MetricsSnapshot]) -> int | None:
    """The last step that all runs have come to; None where one has none."""
    if any(not one.steps for one in metrics):
        return None
    return min(one.steps[-1] for one in metrics)


def _median_at(metrics: MetricsSnapshot, name: str, step: int | None) -> float | None:
    if step is None:
        return None
    pairs = zip(metrics.steps, metrics.series.get(name, ()), strict=False)
    values = [value for at, value in pairs if at <= step and math.isfinite(value)]
    return statistics.median(values[-WINDOW:]) if values else None
