"""How charts are looked at: axis, cursor, window, scale and smoothing. Pure functions of plain numbers."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Literal, NamedTuple

from rltui.tui.picking import after
from rltui.watch.snapshots import RunHistory, RunSnapshot

Axis = Literal["step", "time", "hours"]
"""Training steps, seconds since the first step, or hours × GPUs that were held since the first step."""

AXES: tuple[Axis, ...] = ("step", "time", "hours")

WEIGHTS = (0.0, 0.6, 0.9)
"""What smoothing leaves of the mean so far at each point: off, light, strong."""

FEWEST = 4
"""Points, at their mean distance, that the smallest window holds."""

HOUR_S = 3600.0

Span = tuple[float, float]


class ChartView(NamedTuple):
    """How all charts are looked at.

    Attributes:
        axis: What runs from left to right.
        cursor: A place on the axis; None: there is no cursor, and the latest values are shown.
        window: The part of the axis that is drawn; None: all of it.
        log_y: Whether values are drawn by their logarithm.
        smoothing: One of ``WEIGHTS``.
    """

    axis: Axis = "step"
    cursor: float | None = None
    window: Span | None = None
    log_y: bool = False
    smoothing: float = 0.0


def positions(snapshot: RunSnapshot, axis: Axis) -> tuple[float, ...]:
    """Where each point of a run's series stands on the axis, rising; empty where that is not known."""
    metrics = snapshot.metrics
    if axis == "step":
        return tuple(map(float, metrics.steps))
    times = list(accumulate(metrics.times, _later))
    if len(times) != len(metrics.steps) or not times or not math.isfinite(times[0]):
        return ()
    if axis == "time":
        return tuple(at - times[0] for at in times)
    begun = _gpu_hours(snapshot.history, times[0])
    hours = tuple(_gpu_hours(snapshot.history, at) - begun for at in times)
    return hours if hours[-1] > 0 else ()


def _later(before: float, at: float) -> float:
    """The later of two times; a line without one stands where the one before does."""
    return max(before, at) if math.isfinite(at) else before


def _gpu_hours(history: RunHistory, at: float) -> float:
    """Hours × slots that all attempts had held at a moment, of those whose times are known."""
    held = 0.0
    for one in history.attempts:
        if one.started_at is not None and one.slots:
            end = min(at, one.ended_at if one.ended_at is not None else at)
            held += max(0.0, end - one.started_at) * one.slots / HOUR_S
    return held


def spacing(places: Sequence[float]) -> float:
    """Mean distance between neighbouring points of the axis."""
    return (places[-1] - places[0]) / (len(places) - 1) if len(places) > 1 and places[-1] > places[0] else 1.0


def extent(runs: Sequence[Sequence[float]]) -> Span:
    """All of the axis that points of these runs take; the last point is as wide as the others."""
    known = [places for places in runs if places]
    if not known:
        return 0.0, 1.0
    return min(places[0] for places in known), max(places[-1] + spacing(places) for places in known)


def inside(places: Sequence[float], values: Sequence[float], window: Span) -> Sequence[float]:
    """The values that a window shows, the one with which it begins included."""
    if not places or window[0] >= places[-1] + spacing(places):
        return ()
    first = max(0, bisect.bisect_right(places, window[0]) - 1)
    return values[first : bisect.bisect_left(places, window[1])]


def last_at(places: Sequence[float], values: Sequence[float], place: float) -> int | None:
    """Index of the last point at or before ``place`` that has a number; None where there is none, and behind all."""
    if not places or place >= places[-1] + spacing(places):
        return None
    at = bisect.bisect_right(places, place) - 1
    while at >= 0 and not math.isfinite(values[at]):
        at -= 1
    return at if at >= 0 else None


@lru_cache(maxsize=512)
def in_columns(places: tuple[float, ...], values: tuple[float, ...], window: Span, columns: int) -> tuple[float, ...]:
    """``values`` over the columns of a window: the mean where several meet, the one before where none falls.

    Args:
        places: Where each value stands, rising.
        values: The values; NaN is a gap.
        window: The part of the axis.
        columns: Columns to fill.

    Returns:
        ``columns`` values; NaN before the first point, behind the last, and in gaps.
    """
    low, high = window
    edges = (*places, places[-1] + spacing(places)) if places else ()
    filled = []
    for column in range(columns):
        left, right = (low + at * (high - low) / columns for at in (column, column + 1))
        first = max(0, bisect.bisect_right(edges, left) - 1)
        last = max(first + 1, bisect.bisect_right(edges, right) - 1)
        inside = first < len(values) and right > edges[0]
        bucket = [value for value in values[first:last] if math.isfinite(value)] if inside else []
        filled.append(sum(bucket) / len(bucket) if bucket else math.nan)
    return tuple(filled)


@lru_cache(maxsize=512)
def as_drawn(values: tuple[float, ...], weight: float, log_y: bool) -> tuple[float, ...]:
    """``values`` smoothed, then as their logarithm (base 10) where that is wanted; 0 and less have none: NaN.

    Smoothing is an exponential moving average over points: ``mean = weight × mean + (1 - weight) × value``, divided
    by ``1 - weight ** n`` so that its first points are not drawn to zero (Kingma and Ba 2014, section 3).
    """
    drawn = tuple(_smooth(values, weight)) if weight else values
    return tuple(math.log10(value) if value > 0 else math.nan for value in drawn) if log_y else drawn


def _smooth(values: Sequence[float], weight: float) -> Iterator[float]:
    mean, left = 0.0, 1.0
    for value in values:
        if math.isfinite(value):
            mean, left = weight * mean + (1 - weight) * value, left * weight
            yield mean / (1 - left)
        else:
            yield math.nan


def moved(view: ChartView, places: Sequence[float], whole: Span, columns: int, by: int) -> ChartView:
    """The cursor ``by`` columns on, and at least to the next point; the window goes along.

    Args:
        view: As it is.
        places: Where the points of the run stand.
        whole: All of the axis.
        columns: Columns of a chart.
        by: Columns to the right; less than 0: to the left.
    """
    if not places:
        return view
    low, high = view.window or whole
    start = view.cursor if view.cursor is not None else min(places[-1], high)
    by_columns = by * (high - low) / max(1, columns)
    place = start + by_columns
    here, there = (bisect.bisect_right(places, at) - 1 for at in (start, place))
    if here == there or abs(by_columns) < spacing(places):
        nearest = bisect.bisect_right(places, start) if by > 0 else bisect.bisect_left(places, start) - 1
        place = places[nearest] if 0 <= nearest < len(places) else place
    last = max(places[-1], whole[1] - (high - low) / max(1, columns))
    place = min(max(place, whole[0]), last)
    shift = min(0.0, place - low) + max(0.0, place - high)
    window = _within((low + shift, high + shift), whole) if view.window is not None else None
    return view._replace(cursor=place, window=window)


def zoomed(view: ChartView, places: Sequence[float], whole: Span, factor: float) -> ChartView:
    """A window ``factor`` times as wide around the cursor, or around the newest point; all of it is no window."""
    if not places:
        return view
    low, high = view.window or whole
    width = max((high - low) * factor, FEWEST * spacing(places))
    if width >= whole[1] - whole[0]:
        return view._replace(window=None)
    middle = view.cursor if view.cursor is not None else high
    return view._replace(window=_within((middle - width / 2, middle + width / 2), whole))


def _within(window: Span, whole: Span) -> Span:
    shift = max(0.0, whole[0] - window[0]) - max(0.0, window[1] - whole[1])
    return window[0] + shift, window[1] + shift


def next_axis(view: ChartView, snapshot: RunSnapshot) -> ChartView:
    """The next axis that is known of this run; the cursor stays on its step, and all of the axis is drawn."""
    start = AXES.index(view.axis)
    axis = next(one for one in (*AXES[start + 1 :], "step") if one == "step" or positions(snapshot, one))
    before, after = positions(snapshot, view.axis), positions(snapshot, axis)
    at = bisect.bisect_right(before, view.cursor) - 1 if view.cursor is not None else -1
    return view._replace(axis=axis, window=None, cursor=after[at] if 0 <= at < len(after) else None)


def next_smoothing(view: ChartView) -> ChartView:
    """More smoothing, or none again."""
    return view._replace(smoothing=after(WEIGHTS, view.smoothing))
