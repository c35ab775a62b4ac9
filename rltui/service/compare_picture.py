"""A comparison as a picture: the runs' curves over one another, a panel a metric, and where their steps go."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from rltui.errors import RltuiError, UsageError
from rltui.service.compare import WINDOW, Comparison, Side, positions
from rltui.watch.history import HOUR_S
from rltui.watch.phases import PREFIX, TOTAL
from rltui.watch.runs import RATES

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
    lines = [place.plot([], [], _dashes(number), color=_colour(number))[0] for number in range(len(sides))]
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
        place.plot(at, values, _dashes(number), color=_colour(number), linewidth=0.6, alpha=0.45)
        place.plot(at, smooth, _dashes(number), color=_colour(number), linewidth=1.6)


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


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _dashes(number: int) -> str:
    return DASHES[number // len(COLOURS) % len(DASHES)]
