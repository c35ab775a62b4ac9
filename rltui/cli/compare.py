"""``rltui compare``: runs side by side: settings that differ, metrics at the same step."""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from rltui.cli.output import add_json, answer, columns, talk
from rltui.cli.pick_runs import add_runs, picked_runs
from rltui.errors import UsageError
from rltui.layout.diff import setting_text
from rltui.service.all_clusters import open_clusters
from rltui.service.compare import (
    AXES,
    COLUMNS,
    WINDOW,
    Comparison,
    Row,
    Side,
    compare,
    draw,
    place_words,
    positions,
    read_side,
    usual_metrics,
)
from rltui.watch.phases import PREFIX
from rltui.watch.snapshots import names_of

WIDEST = 40
PICTURES = ("png", "svg")
BAR = 12
"""Cells of the longest bar."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    parser.add_argument("--metric", action="append", default=[], metavar="NAME", help="only this metric; repeatable")
    parser.add_argument("--baseline", metavar="RUN", help="hold the others against it (default: the first)")
    parser.add_argument(
        "--axis",
        choices=AXES,
        default="step",
        help="compare at the same step, seconds of training (waits between attempts left out) or GPU-hours of these",
    )
    parser.add_argument("--csv", action="store_true", help="print the curves instead: a line a run and step")
    for word in PICTURES:
        parser.add_argument(f"--{word}", metavar="FILE", help=f"draw curves and phases into a .{word} file, too")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print what differs between runs, held against --baseline, the first or, of --where, the oldest."""
    with open_clusters(options.cluster) as clusters:
        found = picked_runs(clusters, options)
        if not options.runs:
            found.sort(key=lambda summary: summary.created_at)
        if options.baseline is not None:
            baseline = clusters.find(options.baseline)[1]
            found = [baseline, *(one for one in found if one.identity != baseline.identity)]
        if len(found) < 2:
            raise UsageError("Name two runs, or more.", "rltui compare grpo-1a2b grpo-3c4d, or --where name:grpo")
        called = names_of(summary.identity for summary in found)
        sides = [
            structs.replace(read_side(clusters.context(summary.reader), summary), run_id=called[summary.identity])
            for summary in found
        ]
    told = compare(sides, options.axis)
    known = {row.name for row in told.metrics}
    missing = [name for name in options.metric if name not in known]
    if missing:
        raise UsageError(f"No run has the metric {missing[0]}.", f"They have {', '.join(sorted(known)) or 'none yet'}.")
    names = options.metric or sorted(known)
    _draw(sides, told, options)
    if options.csv:
        _write_csv(sides, names, options.axis)
    else:
        answer(options, {"comparison": told}, _lines(told, names))
    return 0


def _draw(sides: Sequence[Side], told: Comparison, options: argparse.Namespace) -> None:
    """Draw the pictures that are wanted; matplotlib, which is slow to import, only then."""
    files = {word: getattr(options, word) for word in PICTURES if getattr(options, word) is not None}
    if not files:
        return
    for word, file in files.items():
        if not file.endswith(f".{word}"):
            raise UsageError(f"--{word} {file}: the name has to end with .{word}.")
        draw(sides, told, options.metric or usual_metrics({row.name for row in told.metrics}), Path(file))
        talk(f"drawn: {file}")


def _lines(told: Comparison, names: Sequence[str]) -> Iterator[str]:
    yield from columns(("", *told.runs), [(row.name, *map(_total_of(row), row.values)) for row in told.totals])
    yield ""
    if told.settings:
        rows = [(row.name, *map(_text, row.values)) for row in told.settings]
        yield from columns(("SETTING", *told.runs), rows)
    else:
        yield "The settings are the same."
    yield ""
    yield from _metrics(told, names)
    yield from _phases(told)


def _total_of(row: Row) -> Callable[[Any], str]:
    """How a number of a whole run is written."""
    return (lambda share: _text(share) if share is None else f"{share:.0%}") if row.name == "goodput" else _text


def _metrics(told: Comparison, names: Sequence[str]) -> Iterator[str]:
    if told.at is None:
        yield "There is no step that all of them have yet."
        return
    place = place_words(told.axis, told.at, told.unit)
    yield f"Medians of the last {WINDOW} points up to {place}, the last that all have;"
    yield f"in brackets, against {told.runs[0]}:"
    rows = [("step", *map(_text, told.steps))] if told.axis != "step" else []
    rows += [_metric(row) for row in told.metrics if row.name in names]
    yield from columns(("METRIC", *told.runs), rows, frozenset(range(1, len(told.runs) + 1)))


def _phases(told: Comparison) -> Iterator[str]:
    """Mean seconds of a step by phase, with bars on one scale, so that runs can be held against each other."""
    if not told.phases:
        return
    longest = max(value for row in told.phases for value in row.values if value is not None)
    bars = [(_phase(row), *(_seconds(value, longest) for value in row.values)) for row in told.phases]
    beside = [(_phase(row), *(_seconds(value) for value in row.values)) for row in told.beside]
    yield ""
    yield "Seconds of a step by phase, the means of all steps;"
    yield "below: the whole step, and what runs beside its phases:"
    yield from columns(("PHASE", *told.runs), [*bars, *beside])


def _phase(row: Row) -> str:
    return row.name.removeprefix(PREFIX)


def _seconds(value: float | None, longest: float = 0.0) -> str:
    bar = "█" * max(1, round(BAR * value / longest)) if value and longest else ""
    return f"{'–' if value is None else f'{value:.4g}':>7} {bar}"


def _metric(row: Row) -> tuple[str, ...]:
    """A metric's line: the first run's value is what the others are held against."""
    first = row.values[0]
    cells = [_text(first)]
    for value in row.values[1:]:
        against = f" ({(value - first) / abs(first):+.0%})" if first and value is not None else ""
        cells.append(f"{_text(value)}{against}")
    return (row.name, *cells)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else setting_text(value, WIDEST)


def _write_csv(sides: Sequence[Side], names: Sequence[str], axis: str) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    beside = [COLUMNS[axis]] if axis in COLUMNS else []
    writer.writerow(["run", "step", *beside, *names])
    for side in sides:
        for place, step in enumerate(side.metrics.steps):
            values = [side.metrics.series[name][place] if name in side.metrics.series else math.nan for name in names]
            values = [positions(side, axis)[place], *values] if beside else values
            writer.writerow([side.run_id, step, *("" if math.isnan(value) else value for value in values)])
