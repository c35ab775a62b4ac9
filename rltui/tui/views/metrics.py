"""The tab of metrics: what all charts have in common, where a step goes, and every series."""

from __future__ import annotations

import bisect

from rltui.tui import formats
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import Line, Span, cut, line, rule, wrapped
from rltui.tui.views import chart_view, charts, step_time
from rltui.tui.views.charts import ChartPage
from rltui.watch.snapshots import RunSummary

ROOM_FOR_KEYS = 70
"""Columns from which the head says how to read values."""


def head(page: ChartPage, width: int, glyphs: Glyphs) -> list[Line]:
    """How many series, which part of the axis; below it how they are drawn, where that is not as usual."""
    first: Span = (f"{len(page.run.metrics.series)} series  ", "dim")
    key: Span = ("  < > cursor" if page.view.cursor is None and page.places and width >= ROOM_FOR_KEYS else "", "dim")
    lines = [rule([("metrics", "title"), key], [first, (_window(page), "dim")], width, glyphs)]
    drawn: list[Span] = []
    if page.beside is not None:
        drawn.append((f" {glyphs.times} {page.beside.run.summary.run_id} ", "text"))
    if page.view.smoothing:
        drawn.append((f" smoothed {page.view.smoothing} (moving average) ", "dim"))
    if page.view.log_y:
        drawn.append((" log y, 0 and less left out ", "dim"))
    return [*lines, Line(cut(drawn, width, glyphs.ellipsis))] if drawn else lines


def _window(page: ChartPage) -> str:
    """The axis: its two ends, or the part of it that is drawn."""
    places, axis = page.places, page.view.axis
    if not places:
        return ""
    if page.view.window is None:
        if axis == "step":
            return f"steps {page.run.metrics.steps[0]} to {page.run.metrics.steps[-1]}"
        return f"over {_place(places[-1], page)}"
    first, last = bisect.bisect_left(places, page.window[0]), bisect.bisect_left(places, page.window[1])
    points = places[first:last]
    if not points:
        return f"no point here, {_place(places[-1], page)} in all"
    ends = [_place(place, page) for place in (points[0], points[-1], places[-1])]
    few = f", {len(points)} points" if axis == "step" and points[-1] - points[0] >= len(points) else ""
    return f"{'steps ' if axis == 'step' else ''}{ends[0]}–{ends[1]} of {ends[2]}{few}"


def _place(place: float, page: ChartPage) -> str:
    if page.view.axis == "step":
        return f"{place:.0f}"
    if page.view.axis == "time":
        return formats.duration(place)
    return f"{place:.2f} {page.run.history.unit}-h"


def rows(page: ChartPage, width: int, glyphs: Glyphs) -> list[Line]:
    """Where the steps went, then every series as a chart."""
    if not page.run.metrics.series:
        return wrapped(no_series(page.run.summary), width, " ", "dim")
    return [*step_time.chart(page.run.metrics, width, glyphs), *charts.grid(page, width, glyphs)]


def no_series(run: RunSummary) -> str:
    """Why there is nothing to draw."""
    if run.stage.step:
        return f"step {run.stage.step} was seen, and no number of it: a script says them by name, as in loss=0.5"
    return "no steps yet: series appear with the first training step" if run.is_live else "there was no training step"


def alone(page: ChartPage, name: str, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """One series as large as the pane, with its axis below."""
    if height < 3 or not page.places:
        return charts.chart(page, name, width, max(2, height), glyphs)
    low, high = page.window
    ends = _place(low, page), _place(max(low, high - chart_view.spacing(page.places)), page)
    room = max(0, width - charts.LABELS_WIDTH - sum(map(len, ends)))
    axis = line((f"{' ' * charts.LABELS_WIDTH}{ends[0]}{' ' * room}{ends[1]}", "dim"))
    return [*charts.chart(page, name, width, height - 1, glyphs), axis]


def first_rows(page: ChartPage, width: int, glyphs: Glyphs) -> dict[str, int]:
    """The row of :func:`rows` with which the chart of each series begins, in their order."""
    above, abreast = len(step_time.chart(page.run.metrics, width, glyphs)), len(charts.chart_columns(width))
    names = charts.ordered_names(page.run.metrics)
    return {name: above + place // abreast * charts.CELL_HEIGHT for place, name in enumerate(names)}
