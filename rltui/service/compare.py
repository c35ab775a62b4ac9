"""Runs side by side: the settings in which they differ, and their numbers at the same step, as words or curves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from rltui.errors import RltuiError, UsageError
from rltui.layout.diff import differing
from rltui.service.config import read_work, settings_of
from rltui.service.context import Context
from rltui.service.describe import attempt_path
from rltui.service.history import read_history
from rltui.watch.history import HOUR_S, StepTime
from rltui.watch.phases import BESIDE, PREFIX, REST, TOTAL, phase_names, stacked
from rltui.watch.run_watcher import RunWatcher
from rltui.watch.runs import RATES
from rltui.watch.snapshots import MetricsSnapshot, RunHistory, RunSummary

WINDOW = 10
"""Points that a metric is the median of: one step of RL says little."""


class Side(Struct, frozen=True, kw_only=True):
    """What is held against the other runs of one of them."""

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
    metrics = watcher.every_step()
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


COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
"""Of the runs: told apart by colour-blind people too (Okabe and Ito 2008, without yellow, which is pale on white)."""
DASHES = ("-", "--", ":", "-.")
"""One a round of ``COLOURS``."""
TITLES = {
    "response_length": "response length, tokens",
    "time/total": "step time, s",
    RATES[0]: "learner tokens/s",
    RATES[1]: "engine tokens/s",
}
SETTINGS = {
    "svg.hashsalt": "rltui",  # else names inside of an SVG are random
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name with $ in it is a name
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.3,
    "font.size": 9,
    "axes.titlesize": 10,
}
PANEL_INCHES = (4.2, 2.9)


def usual_metrics(known: Collection[str]) -> list[str]:
    """What is drawn where nobody chose: the usual metrics, as far as they are ``known``."""
    rate = next((name for name in RATES if name in known), RATES[0])
    return [name for name in ("reward", "loss", "response_length", rate, "time/total") if name in known]


def draw(sides: Sequence[Side], told: Comparison, names: Sequence[str], path: Path) -> None:
    """Write a picture of runs; the same numbers give the same bytes.

    Args:
        sides: The runs.
        told: Their comparison, for its axis and the phases.
        names: Metrics, a panel each.
        path: The file; its ending, ``.png`` or ``.svg``, says what it becomes.

    Raises:
        UsageError: matplotlib is missing, or there is nothing to draw.
        RltuiError: The file cannot be written.
    """
    if not names and not told.phases:
        raise UsageError("There is nothing to draw yet.", "--metric NAME draws others than the usual metrics.")
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("A picture needs matplotlib.", "pip install 'rltui[pictures]'") from error
    panels = len(names) + bool(told.phases)
    across = panels if panels < 3 else 2 if panels == 4 else 3
    down = math.ceil(panels / across)
    with style.context(["default", SETTINGS]):  # not the user's own settings: all get the same picture
        figure = Figure((PANEL_INCHES[0] * across, PANEL_INCHES[1] * down + 0.5), layout="constrained")
        places = figure.subplots(down, across, squeeze=False).flatten()
        for place, name in zip(places, names, strict=False):
            _curves(place, sides, told, name)
        if told.phases:
            _phases(places[len(names)], told)
        for place in places[panels:]:
            place.remove()
        if names:
            _legend(figure, sides, places[0])
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)
        except OSError as error:
            raise RltuiError(f"{path} cannot be written: {error.strerror}.", "Name another file.") from error


def _legend(figure: Any, sides: Sequence[Side], place: Any) -> None:
    lines = [place.plot([], [], **_drawn(number))[0] for number in range(len(sides))]
    figure.legend(
        lines,
        [side.run_id for side in sides],
        loc="outside upper center",
        ncols=min(len(sides), 3),
        frameon=False,
        title=f"thin: each point; thick: median of the last {WINDOW}",
        title_fontsize=8,
    )


def _curves(place: Any, sides: Sequence[Side], told: Comparison, name: str) -> None:
    """One metric of all runs: each point thin, and the running median thick, as one step of RL says little."""
    place.set_title(TITLES.get(name, name))
    divide, label = _scale(sides, told)
    place.set_xlabel(label)
    for number, side in enumerate(sides):
        points = list(_points(side, told.axis, name))
        at, values = [at / divide for at, _ in points], [value for _, value in points]
        smooth = [statistics.median(values[max(0, end - WINDOW) : end]) for end in range(1, len(values) + 1)]
        place.plot(at, values, **_drawn(number), linewidth=0.6, alpha=0.45)
        place.plot(at, smooth, **_drawn(number), linewidth=1.6)


def _points(side: Side, axis: str, name: str) -> Iterator[tuple[float, float]]:
    pairs = zip(positions(side, axis), side.metrics.series.get(name, ()), strict=False)
    return (pair for pair in pairs if all(map(math.isfinite, pair)))


def _scale(sides: Sequence[Side], told: Comparison) -> tuple[float, str]:
    """What places on the axis are divided by, and its title."""
    if told.axis != "time":
        return 1.0, "step" if told.axis == "step" else f"{told.unit}-hours"
    longest_s = max(filter(math.isfinite, (at for side in sides for at in positions(side, "time"))), default=0.0)
    return (HOUR_S, "hours of training") if longest_s > 2 * HOUR_S else (60.0, "minutes of training")


def _phases(place: Any, told: Comparison) -> None:
    """Mean seconds of a step by phase: a stacked bar a run, the first on top, and a line where the step ends."""
    from matplotlib import colormaps

    place.set_title("seconds of a step by phase; |: the whole step")
    shades = colormaps["cividis"].resampled(max(2, len(told.phases)))
    at, reached = range(len(told.runs)), [0.0] * len(told.runs)
    for number, row in enumerate(told.phases):
        seconds = [value or 0.0 for value in row.values]
        name = row.name.removeprefix(PREFIX)
        place.barh(at, seconds, height=0.5, left=reached, color=shades(number), label=name, edgecolor="white")
        reached = [before + more for before, more in zip(reached, seconds, strict=True)]
    totals = next((row.values for row in told.beside if row.name == TOTAL), [None] * len(told.runs))
    for y, (run_id, total) in enumerate(zip(told.runs, totals, strict=True)):
        place.text(0, y - 0.29, run_id, fontsize=8)
        if total is not None:
            place.plot([total] * 2, [y - 0.29, y + 0.29], color="#D55E00", linewidth=2)
    place.set_yticks([])
    place.set_ylim(len(told.runs) - 0.5, -0.7)
    place.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3, frameon=False, fontsize=8)


def _drawn(number: int) -> dict[str, str]:
    """How a run's lines are drawn: in a colour of its own, and with another dash once the colours are used up."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number // len(COLOURS) % len(DASHES)]}
