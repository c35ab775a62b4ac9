"""Charts of metric series: a title with the latest value, a curve, and the two ends of its axis."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from rltui.tui import braille, formats
from rltui.tui.compose import Section, beside, exactly, split
from rltui.tui.spans import BLANK, Line, line, pad, rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from rltui.tui.glyphs import Glyphs
    from rltui.tui.spans import Span
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
    rows = braille.area(values, width - 8, height, low, high, glyphs)
    ends = {0: labels(high), height - 1: labels(low)} if height > 1 else {0: labels(high)}
    return tuple(
        line((f"{pad(ends.get(index, ''), 7, right=True)} ", "dim"), (text, "bar")) for index, text in enumerate(rows)
    )


def series_section(
    snapshot: RunSnapshot, name: str, glyphs: Glyphs, rank: int, wanted: int = 6, fallback: tuple[float, ...] = ()
) -> Section:
    """One series as a section; with nothing to show it asks for no rows.

    Args:
        snapshot: The run.
        name: Canonical metric name.
        glyphs: The alphabet.
        rank: Rank of the section.
        wanted: Rows that the curve can use.
        fallback: Values where the run has no such series (yet).
    """
    values = snapshot.metrics.series.get(name, ()) or fallback
    latest = snapshot.metrics.latest.get(name, values[-1] if values else math.nan)
    labels = labels_of(name)

    def body(width: int, height: int) -> list[Line]:
        if not values:
            return exactly([BLANK] * ((height - 1) // 2) + [line(("        no steps yet", "dim"))], height)
        return list(curve(values, width, height, glyphs, labels))

    return Section(title_spans(name, latest), (), body, least=2, wanted=wanted, rank=rank)


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


def grid(metrics: MetricsSnapshot, width: int, glyphs: Glyphs) -> list[Line]:
    """Every series as a chart, in as many columns as fit."""
    names = ordered_names(metrics)
    columns = max(1, min(4, (width + 1) // CELL_WIDTH))
    widths = split(width, [1] * columns, gap=2)
    lines: list[Line] = []
    for first in range(0, len(names), columns):
        shares = zip(names[first : first + columns], widths, strict=False)
        lines.extend(beside([(_cell(metrics, name, share, glyphs), share) for name, share in shares], gap=2))
    return lines


def _cell(metrics: MetricsSnapshot, name: str, width: int, glyphs: Glyphs) -> list[Line]:
    values = metrics.series[name]
    latest = metrics.latest.get(name, values[-1] if values else math.nan)
    head = rule(title_spans(name, latest), (), width, glyphs)
    return [head, *curve(values, width, CELL_HEIGHT - 2, glyphs, labels_of(name)), BLANK]
