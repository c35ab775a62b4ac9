"""Where the steps went, as a chart over the run: each column is a step's time, cut into its phases. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rltui.tui import braille, formats
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import Line, Role, Span, cut, joined, line, pad, rule
from rltui.watch.phases import PREFIX, REST, REST_FROM, TOTAL, phase_names
from rltui.watch.snapshots import MetricsSnapshot

SHORT_NAMES = {"weight_sync": "sync", "saving": "save"}

ROLES: tuple[Role, ...] = ("bar", "ok", "attention", "waiting", "accent")
ROWS = 6
MOST_PHASES = 4
"""Phases with a shade of their own; what is left over is the rest."""


BLANK_CELL: Span = (" ", "text")


class Phase(NamedTuple):
    """One phase: its word, and its seconds in each column."""

    name: str
    seconds: list[float]


def phases(metrics: MetricsSnapshot, columns: int) -> list[Phase]:
    """The phases of a step over ``columns``; what the total has beyond them is the rest."""
    found = [Phase(word(name), _filled(metrics.series[name], columns)) for name in phase_names(metrics.series)]
    shown = [phase for phase in found if any(phase.seconds)][:MOST_PHASES]
    if TOTAL in metrics.series:
        total = _filled(metrics.series[TOTAL], columns)
        rest = [max(0.0, all_ - sum(p.seconds[at] for p in shown)) for at, all_ in enumerate(total)]
        if sum(rest) > REST_FROM * sum(total):
            shown.append(Phase(REST, rest))
    return shown


def word(name: str) -> str:
    """The word for a phase."""
    word = name.removeprefix(PREFIX)
    return SHORT_NAMES.get(word, word)


def _filled(values: Sequence[float], columns: int) -> list[float]:
    return [value if math.isfinite(value) else 0.0 for value in braille.resample(values, columns)]


def chart(metrics: MetricsSnapshot, width: int, glyphs: Glyphs, rows: int = ROWS) -> list[Line]:
    """Rule, stacked columns with their axis, and the legend; nothing where no phase was measured."""
    room = max(1, width - 8)
    found = phases(metrics, room)
    if not found or not any(any(phase.seconds) for phase in found):
        return []
    totals = [sum(phase.seconds[at] for phase in found) for at in range(room)]
    top = braille.bounds([*totals, 0.0])[1]
    columns = [_column([phase.seconds[at] for phase in found], top, rows) for at in range(room)]
    head: tuple[Span, ...] = (
        ("where a step goes", "title"),
        (f" {formats.seconds(metrics.latest.get(TOTAL))}", "text"),
    )
    lines = [rule(head, (("seconds a step, over the run", "dim"),), width, glyphs)]
    for row in range(rows):
        label = formats.metric(top) if row == 0 else "0" if row == rows - 1 else ""
        numbers = (column[rows - 1 - row] for column in columns)
        cells = joined(look(number, glyphs) if number >= 0 else BLANK_CELL for number in numbers)
        lines.append(line((f"{pad(label, 7, right=True)} ", "dim"), *cells))
    return [*lines, Line(cut(_legend(found, glyphs).spans, width, glyphs.ellipsis))]


def _column(parts: Sequence[float], top: float, rows: int) -> list[int]:
    """Number of the phase in each cell from the bottom; -1 where there is none. Edges are rounded, so parts add up."""
    cells, reached, sum_ = [-1] * rows, 0, 0.0
    for number, part in enumerate(parts):
        sum_ += part
        edge = min(rows, round(sum_ / top * rows)) if top > 0 else 0
        cells[reached:edge] = [number] * (edge - reached)
        reached = max(reached, edge)
    if reached == 0 and sum_ > 0:
        cells[0] = max(range(len(parts)), key=lambda number: parts[number])
    return cells


def look(number: int, glyphs: Glyphs) -> Span:
    """Shade and colour of a phase: told apart without colour, too."""
    at = min(number, len(glyphs.shades) - 1)
    return glyphs.shades[at], ROLES[min(at, len(ROLES) - 1)]


def _legend(found: Sequence[Phase], glyphs: Glyphs) -> Line:
    everything = sum(sum(phase.seconds) for phase in found) or 1.0
    spans: list[Span] = [("        ", "dim")]
    for number, phase in enumerate(found):
        glyph, role = look(number, glyphs)
        spans += [(f"{glyph} ", role), (f"{phase.name} {sum(phase.seconds) / everything * 100:.0f}%   ", "dim")]
    return line(*spans)
