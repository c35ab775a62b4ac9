"""Charts of metric series: a title with the latest value, a curve, and the two ends of its axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from rltui.tui import braille, formats
from rltui.tui.compose import Section, beside, exactly, split
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import BLANK, Line, Role, Span, clip, joined, line, pad, rule, width_of
from rltui.tui.views import chart_view
from rltui.tui.views.chart_view import ChartView
from rltui.watch.snapshots import MetricsSnapshot, RunSnapshot

REWARD = "reward"
TOKENS = "actor_tokens_per_second"
LEARNER_TOKENS = "learner_tokens_per_second_step"

SPEEDS = (LEARNER_TOKENS, TOKENS)
"""What can stand for a run's speed, best first: ``rltui.watch.runs.RATES``, which costs 20 ms to import at start-up."""

LEARNER_MFU, ACTOR_MFU, ACTOR_MBU = "learner_mfu", "actor_mfu", "actor_mbu"
"""Percent of the GPUs' peak arithmetic (MFU) and memory bandwidth (MBU)."""

TITLES = {
    REWARD: "reward",
    TOKENS: "actor tok/s",
    LEARNER_TOKENS: "learner tok/s",
    LEARNER_MFU: "learner MFU",
    ACTOR_MFU: "actor MFU",
    ACTOR_MBU: "actor MBU",
}

ORDER = (
    REWARD,
    "eval/reward_mean",
    "reward_std",
    TOKENS,
    LEARNER_TOKENS,
    LEARNER_MFU,
    ACTOR_MFU,
    ACTOR_MBU,
    "loss",
    "grad_norm",
    "entropy",
    "clip_fraction",
    "learning_rate",
    "response_length",
    "zero_std_fraction",
    "truncated_fraction",
    "parity_max_abs",
)
"""Metrics that come first, in this order; the others follow by name."""

CELL_WIDTH = 38
"""Narrowest chart of the metrics tab, in cells."""

LABELS_WIDTH = 8
"""Cells of an axis' labels, at the left of a curve."""

CELL_HEIGHT = 7
"""Rows of one chart of the metrics tab, its rule included."""


@lru_cache(maxsize=64)
def curve(
    values: tuple[float, ...], width: int, height: int, glyphs: Glyphs, labels: Callable[[float | None], str]
) -> tuple[Line, ...]:
    """A filled curve with the axis' top and bottom values at its left.

    The cache spares redrawing when only something else of the screen has changed.
    """
    low, high = braille.bounds(values)
    rows = braille.area(values, width - LABELS_WIDTH, height, low, high, glyphs)
    ends = {0: labels(high), height - 1: labels(low)} if height > 1 else {0: labels(high)}
    return tuple(
        line((f"{pad(ends.get(index, ''), LABELS_WIDTH - 1, right=True)} ", "dim"), (text, "bar"))
        for index, text in enumerate(rows)
    )


def series_section(
    snapshot: RunSnapshot, name: str, glyphs: Glyphs, wanted: int = 6, fallback: tuple[float, ...] = ()
) -> Section:
    """One series as a section; with nothing to show it asks for no rows.

    Args:
        snapshot: The run.
        name: Canonical metric name.
        glyphs: The alphabet.
        wanted: Rows that the curve can use.
        fallback: Values where the run has no such series (yet).
    """
    values = snapshot.metrics.series.get(name, ()) or fallback
    latest = snapshot.metrics.latest.get(name, values[-1] if values else math.nan)
    labels = labels_of(name)
    missing = "not measured" if snapshot.metrics.steps else "no steps yet"
    missing = f"reading {glyphs.ellipsis}" if snapshot.is_awaited else missing

    def body(width: int, height: int) -> list[Line]:
        if not values:
            return exactly([BLANK] * ((height - 1) // 2) + [line((f"        {missing}", "dim"))], height)
        return list(curve(values, width, height, glyphs, labels))

    return Section(title_spans(name, latest), (), body, least=2, wanted=wanted, rank=2)


def title_spans(name: str, latest: float) -> tuple[Span, ...]:
    """Name and latest value of a series."""
    return ((TITLES.get(name, name), "title"), (f" {labels_of(name)(latest)}", "text"))


def labels_of(name: str) -> Callable[[float | None], str]:
    """How values of a metric are written."""
    if "tokens" in name:
        return formats.count
    if name in (LEARNER_MFU, ACTOR_MFU, ACTOR_MBU):
        return formats.percent
    return formats.reward if name == REWARD else formats.metric


def ordered_names(metrics: MetricsSnapshot) -> list[str]:
    """Names of all series: the well-known ones first, then by name."""
    known = [name for name in ORDER if name in metrics.series]
    return known + sorted(name for name in metrics.series if name not in ORDER)


class Beside(NamedTuple):
    """A run whose series are drawn as points over those of another."""

    run: RunSnapshot
    places: tuple[float, ...]


class ChartPage(NamedTuple):
    """What all charts of a run share.

    Attributes:
        run: Whose series they are.
        view: How they are looked at.
        places: Where its points stand on the axis.
        beside: Another run; None: there is none.
    """

    run: RunSnapshot
    view: ChartView
    places: tuple[float, ...]
    beside: Beside | None = None

    @property
    def whole(self) -> chart_view.Span:
        """First and last place of the axis, over this run and the one beside it."""
        return chart_view.extent([self.places, *([self.beside.places] if self.beside else [])])

    @property
    def window(self) -> chart_view.Span:
        """The part of it that is drawn."""
        return self.view.window or self.whole


def chart_page(run: RunSnapshot, view: ChartView, beside: RunSnapshot | None) -> ChartPage:
    """The charts of a run; a run beside that does not know the axis is not drawn."""
    other = Beside(beside, chart_view.positions(beside, view.axis)) if beside is not None else None
    return ChartPage(run, view, chart_view.positions(run, view.axis), other if other and other.places else None)


def chart_columns(width: int) -> list[int]:
    """Width of each of the charts that stand side by side."""
    return split(width, [1] * max(1, min(4, (width + 1) // CELL_WIDTH)), gap=2)


def grid(page: ChartPage, width: int, glyphs: Glyphs) -> list[Line]:
    """Every series as a chart, in as many columns as fit."""
    names, widths = ordered_names(page.run.metrics), chart_columns(width)
    lines: list[Line] = []
    for first in range(0, len(names), len(widths)):
        shares = list(zip(names[first : first + len(widths)], widths, strict=False))
        cells = [([*chart(page, name, share, CELL_HEIGHT - 1, glyphs), BLANK], share) for name, share in shares]
        lines.extend(beside(cells, gap=2))
    return lines


def chart(page: ChartPage, name: str, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """One series: a rule with its values, and ``height - 1`` rows of curve."""
    head = _head(page, name, width, glyphs)
    other = page.beside.run.metrics.series.get(name, ()) if page.beside else ()
    drawn = _drawn(
        (page.places, page.run.metrics.series[name]),
        (page.beside.places, other) if page.beside and other else ((), ()),
        page.window,
        page.view,
        (width, height - 1),
        glyphs,
        labels_of(name),
    )
    return [head, *drawn]


def _head(page: ChartPage, name: str, width: int, glyphs: Glyphs) -> Line:
    """Name, value and other run's value; with a cursor the step and the time that the value is of."""
    metrics, labels, cursor = page.run.metrics, labels_of(name), page.view.cursor
    values, at = metrics.series[name], None
    if cursor is None:
        value = metrics.latest.get(name, values[-1] if values else math.nan)
    else:
        at = chart_view.last_at(page.places, values, cursor)
        value = values[at] if at is not None else math.nan
    numbers: list[Span] = [(f" {labels(value)}", "text")]
    if page.beside is not None:
        numbers.append((f" {glyphs.times} {labels(_of_other(page.beside, name, cursor))}", "text"))
    title, moment = TITLES.get(name, name), _moment(metrics, at) if at is not None else ""
    if len(title) > _room(width, numbers, moment):
        moment = moment.removeprefix("step ")
    title = clip(title, _room(width, numbers, moment), glyphs.ellipsis)
    return rule([(title, "title"), *numbers], [(moment, "dim")] if moment else (), width, glyphs)


def _room(width: int, numbers: Sequence[Span], moment: str) -> int:
    """Cells that a rule leaves to the name of a series."""
    return max(3, width - 6 - width_of(numbers) - (len(moment) + 2 if moment else 0))


def _of_other(beside: Beside, name: str, cursor: float | None) -> float:
    metrics = beside.run.metrics
    if cursor is None:
        return metrics.latest.get(name, math.nan)
    values = metrics.series.get(name, ())
    at = chart_view.last_at(beside.places, values, cursor) if values else None
    return values[at] if at is not None else math.nan


def _moment(metrics: MetricsSnapshot, at: int) -> str:
    """Step of a point, and how long after the first step it was."""
    step = f"step {metrics.steps[at]}"
    since = metrics.times[at] - metrics.times[0] if at < len(metrics.times) else math.nan
    return f"{step} {formats.duration(since)}" if math.isfinite(since) else step


Series = tuple[tuple[float, ...], tuple[float, ...]]
"""Places on the axis, and the value at each."""


@lru_cache(maxsize=256)
def _drawn(
    own: Series,
    other: Series,
    window: chart_view.Span,
    view: ChartView,
    size: tuple[int, int],
    glyphs: Glyphs,
    labels: Callable[[float | None], str],
) -> tuple[Line, ...]:
    """Rows of a chart: the run's own series filled, the other's as points, the cursor as a column."""
    width, height = size[0] - LABELS_WIDTH, size[1]
    curves = [(places, chart_view.as_drawn(values, view.smoothing, view.log_y)) for places, values in (own, other)]
    seen = [value for places, values in curves for value in chart_view.inside(places, values, window)]
    if not any(map(math.isfinite, seen)):
        nothing = "0 and less have no logarithm" if view.log_y else "nothing was measured here"
        return tuple(exactly([BLANK] * ((height - 1) // 2) + [line((f"        {nothing}", "dim"))], height))
    low, high = _log_bounds(seen) if view.log_y else braille.bounds(seen)
    cells = 1 if glyphs.ascii_only else 2
    filled = chart_view.in_columns(*curves[0], window, max(0, width) * cells)
    rows = [list(row) for row in braille.area(filled, width, height, low, high, glyphs)]
    looks: list[list[Role]] = [["bar"] * len(row) for row in rows]
    levels = braille.rows_of(chart_view.in_columns(*curves[1], window, max(0, width)), height, low, high)
    for column, row in enumerate(levels):
        if row is not None:
            rows[row][column], looks[row][column] = glyphs.times, "text"
    _mark(rows, looks, view.cursor, window)
    ends = {height - 1: low, 0: high} if height > 1 else {0: high}
    words = {at: labels(10**value if view.log_y else value) for at, value in ends.items()}
    return tuple(
        line(
            (f"{pad(words.get(at, ''), LABELS_WIDTH - 1, right=True)} ", "dim"),
            *joined(zip(row, looks[at], strict=True)),
        )
        for at, row in enumerate(rows)
    )


def _mark(rows: list[list[str]], looks: list[list[Role]], cursor: float | None, window: chart_view.Span) -> None:
    """Put the cursor's column into the cells of a chart, where it is in sight."""
    low, high = window
    if cursor is None or not rows or not rows[0] or not low <= cursor <= high:
        return
    at = min(len(rows[0]) - 1, int((cursor - low) / (high - low) * len(rows[0])))
    for row, look in zip(rows, looks, strict=True):
        row[at], look[at] = ("│", "accent") if row[at] == " " else (row[at], "match")


def _log_bounds(values: Sequence[float]) -> tuple[float, float]:
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(end, math.log10(braille.MOST)) for end in (min(finite), max(finite)))
    return (low, high) if high > low else (low - 0.5, high + 0.5)
