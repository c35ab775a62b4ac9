"""Runs side by side: the settings in which they differ, and their numbers at the same step."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rltui.errors import UsageError
from rltui.layout.diff import differing
from rltui.service.config import read_work, settings_of
from rltui.service.context import Context
from rltui.service.describe import attempt_path
from rltui.service.history import read_history
from rltui.watch.history import HOUR_S, StepTime
from rltui.watch.phases import BESIDE, REST, TOTAL, phase_names, stacked
from rltui.watch.run_watcher import RunWatcher
from rltui.watch.snapshots import MetricsSnapshot, RunHistory, RunSummary

if TYPE_CHECKING:
    from rltui.watch.snapshots import RunHistory


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
    spent: dict[str, tuple[float, ...]] = {}
    """What each of the metrics' steps came after, by axis."""
    mean_seconds: dict[str, float] = {}
    """Seconds of a step that each ``time/…`` metric took, the mean of all steps."""


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
    """Medians of at most ``WINDOW`` points up to ``at``."""
    totals: tuple[Row, ...]
    """Of each run as a whole."""
    phases: tuple[Row, ...] = ()
    """Mean seconds of a step by phase, in their order; ``other`` is what no phase explains."""
    beside: tuple[Row, ...] = ()
    """``time/total``, and what runs beside the phases or inside of one, such as a role that waits."""
    axis: str = "step"
    """What the metrics are compared at the same point of, one of ``AXES``."""
    at: float | None = None
    """The last point of the axis that all of them have come to: a step, seconds or GPU-hours; None: there is none."""
    steps: tuple[int | None, ...] = ()
    """The last step that each had done there."""
    unit: str = "GPU"
    """What the hours of the axis ``gpu_hours`` are of."""


def read_side(context: Context, run: RunSummary) -> Side:
    """Read what a comparison needs of ``run``.

    Raises:
        LayoutError: Its layout is not one that this version reads.
    """
    client, path = context.cluster.client, attempt_path(run)
    watcher = RunWatcher(client, run.path)
    history = read_history(context, run, watcher)
    metrics = watcher.whole().metrics
    return Side(
        run_id=run.run_id,
        state=run.state,
        settings=settings_of(read_work(client, path)),
        metrics=metrics,
        history=history,
        spent=spent(metrics.steps, history, watcher.step_times),
        mean_seconds=watcher.mean_seconds(),
    )


def compare(sides: Sequence[Side], axis: str = "step") -> Comparison:
    """Put ``sides`` beside each other, their metrics at the last point of ``axis`` that all have.

    Raises:
        UsageError: A run has no place on ``axis``.
    """
    require_axis(sides, axis)
    at = last_common(sides, axis)
    names = sorted({name for side in sides for name in side.metrics.series})
    metrics = [Row(name=name, values=tuple(_median_at(side, name, axis, at) for side in sides)) for name in names]
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
        step=None if (step := last_common(sides, "step")) is None else int(step),
        metrics=tuple(row for row in metrics if any(value is not None for value in row.values)),
        totals=tuple(Row(name=name, values=tuple(values)) for name, values in totals.items()),
        phases=_rows([stacked(side.mean_seconds) for side in sides]),
        beside=_rows([{name: side.mean_seconds.get(name) for name in (TOTAL, *sorted(BESIDE))} for side in sides]),
        axis=axis,
        at=at,
        steps=tuple(_step_at(side, axis, at) for side in sides),
        unit=sides[0].history.unit if sides else "GPU",
    )


def _rows(columns: Sequence[Mapping[str, float | None]]) -> tuple[Row, ...]:
    """A row a name of any column, in their order; none of those that have no number at all."""
    names = {name for column in columns for name, value in column.items() if value is not None}
    order = [
        *(name for name in phase_names(names)),
        *(name for name in (REST, TOTAL, *sorted(BESIDE)) if name in names),
    ]
    return tuple(Row(name=name, values=tuple(column.get(name) for column in columns)) for name in order)


def last_common(sides: Sequence[Side], axis: str) -> float | None:
    """The last point of ``axis`` that all runs have come to; None where one has none."""
    ends = [max(filter(math.isfinite, positions(side, axis)), default=None) for side in sides]
    return None if None in ends else min((end for end in ends if end is not None), default=None)


def _median_at(side: Side, name: str, axis: str, at: float | None) -> float | None:
    if at is None:
        return None
    pairs = zip(positions(side, axis), side.metrics.series.get(name, ()), strict=False)
    values = [value for place, value in pairs if place <= at and math.isfinite(value)]
    return statistics.median(values[-WINDOW:]) if values else None


def _step_at(side: Side, axis: str, at: float | None) -> int | None:
    pairs = zip(positions(side, axis), side.metrics.steps, strict=True)
    return None if at is None else max((step for place, step in pairs if place <= at), default=None)


AXES = ("step", "time", "gpu_hours")
COLUMNS = {"time": "time_s", "gpu_hours": "gpu_hours"}
"""The column of an axis other than the step, with its unit."""


def spent(
    steps: Sequence[int], history: RunHistory, times: Mapping[int, Mapping[int, StepTime]]
) -> dict[str, tuple[float, ...]]:
    """What each of ``steps`` came after, by axis; NaN where nothing tells.

    Time begins with the first training step and runs while an attempt has its machines: saving, steps that were done
    again and the start-up of a later attempt are in it, since they cost GPUs; the wait between two attempts is not.

    Args:
        steps: Steps that count.
        history: The attempts by their starts, with the GPUs of each.
        times: When steps ended, by attempt and step.
    """
    found: dict[int, tuple[float, float]] = {}
    spent_s = spent_h = 0.0
    for attempt in history.attempts:
        steps_of = times.get(attempt.number, {})
        ends = [(one.at, step) for step, one in steps_of.items() if one.at is not None]
        start = attempt.started_at if found else None
        if start is None and ends:
            first_at, first = min(ends)
            start = first_at - (steps_of[first].took_s or 0.0)
        if start is None:
            continue
        gpus = attempt.slots or math.nan
        for at, step in ends:
            done_s = max(0.0, at - start)
            found[step] = (spent_s + done_s, spent_h + done_s * gpus / HOUR_S)
        last = max((at for at, _ in ends), default=start)
        held_s = max(0.0, (attempt.ended_at or last) - start)
        spent_s, spent_h = spent_s + held_s, spent_h + held_s * gpus / HOUR_S
    pairs = [found.get(step, (math.nan, math.nan)) for step in steps]
    return {"time": tuple(pair[0] for pair in pairs), "gpu_hours": tuple(pair[1] for pair in pairs)}


def positions(side: Side, axis: str) -> Sequence[float]:
    """Where each point of a run stands on ``axis``."""
    return side.metrics.steps if axis == "step" else side.spent[axis]


def require_axis(sides: Sequence[Side], axis: str) -> None:
    """See that runs can stand on one axis.

    Raises:
        UsageError: The points of one have no place on it, or its hours are of something else.
    """
    for side in sides:
        if side.metrics.steps and not any(map(math.isfinite, positions(side, axis))):
            raise UsageError(f"{side.run_id} does not say when its steps ended.", "--axis step compares by steps.")
    if axis == "gpu_hours" and len({side.history.unit for side in sides}) > 1:
        raise UsageError("One run has GPUs and another CPU slots: their hours differ.", "--axis time compares them.")


def place_words(axis: str, at: float, unit: str) -> str:
    """A place on an axis in words, such as ``1.5 GPU-hours``."""
    if axis == "step":
        return f"step {at:.0f}"
    return f"{at / HOUR_S:.3g} hours of training" if axis == "time" else f"{at:.3g} {unit}-hours"
