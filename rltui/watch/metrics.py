"""The metrics of a run: the ``metrics.jsonl`` of all its attempts as one set of curves.

The curves are thinned so that a chart of any run costs the same.
"""

from __future__ import annotations

import bisect
import math
from array import array
from collections.abc import Mapping

from rltui.onnode import rundir
from rltui.onnode.metric_names import KNOWN, canonical_values
from rltui.watch.history import StepTimes
from rltui.watch.lines import AttemptLines, parse_object
from rltui.watch.snapshots import MetricsSnapshot
from rltui.watch.text import plain

MAX_POINTS = 512
"""Points of a thinned curve; a terminal is narrower."""

MAX_SERIES = 256
"""Series that are kept beside those that rltui knows by name; a broken writer could invent a new name each step."""

NAN = math.nan

MAX_STEP = 10**15
TIME = "time"


class Curves:
    """All series of a run on one axis of strictly rising steps.

    A line whose step is not beyond the last one drops every point from that step on: a resumed attempt repeats the
    steps since its checkpoint, and what it does is what the run is.
    """

    def __init__(self) -> None:
        self._steps = array("q")
        self._series: dict[str, array[float]] = {}
        self._width = 1
        self._closed: dict[str, array[float]] = {}

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add the point at ``step``; a series that is not in ``values`` has NaN there."""
        if self._steps and step <= self._steps[-1]:
            self._drop_from(step)
        for name in values:
            if name not in self._series and (len(self._series) < MAX_SERIES or name in KNOWN):
                self._series[name] = array("d", [NAN]) * len(self._steps)
        self._steps.append(step)
        for name, series in self._series.items():
            series.append(values.get(name, NAN))

    def whole(self) -> tuple[tuple[int, ...], dict[str, tuple[float, ...]]]:
        """Return all steps, and each series at them."""
        return tuple(self._steps), {name: tuple(series) for name, series in self._series.items()}

    def thinned(self) -> tuple[tuple[int, ...], dict[str, tuple[float, ...]]]:
        """Return at most ``MAX_POINTS`` steps, and each series at them.

        First and last point are kept as they are. The others are taken in buckets of equal width, and each gives two
        points at its first and last step: its minimum and maximum in the order in which they came, so that no spike is
        lost, and a value is at most one bucket away from where it was.
        """
        count = len(self._steps)
        if count <= MAX_POINTS:
            return self.whole()
        width = self._bucket_width(count - 2)
        if width != self._width:
            self._width, self._closed = width, {}
        ends = [(low, min(low + width, count - 1)) for low in range(1, count - 1, width)]
        middle = [index for low, high in ends for index in ([low, high - 1] if high - low > 1 else [low])]
        steps = self._steps
        thin = {name: self._thin(name, ends) for name in self._series}
        return (steps[0], *(steps[index] for index in middle), steps[-1]), thin

    @staticmethod
    def _bucket_width(count: int) -> int:
        """The smallest power of two with which ``count`` points fit, so that widths, and what is cached, last."""
        width = 2
        while 2 * math.ceil(count / width) > MAX_POINTS - 2:
            width *= 2
        return width

    def _thin(self, name: str, ends: list[tuple[int, int]]) -> tuple[float, ...]:
        series = self._series[name]
        closed = self._closed.setdefault(name, array("d"))
        for low, high in ends[len(closed) // 2 : -1]:
            closed.extend(_low_and_high(series[low:high]))
        low, high = ends[-1]
        last = _low_and_high(series[low:high]) if high - low > 1 else (series[low],)
        return (series[0], *closed, *last, series[-1])

    def means(self, prefix: str) -> dict[str, float]:
        """Mean of each series whose name begins with ``prefix``, over the points at which any of these has a number.

        A series without a number there counts as 0: a phase that not every step has, such as saving.
        """
        chosen = {name: series for name, series in self._series.items() if name.startswith(prefix)}
        points = sum(any(map(math.isfinite, row)) for row in zip(*chosen.values(), strict=True))
        return {name: sum(filter(math.isfinite, series)) / points for name, series in chosen.items() if points}

    def _drop_from(self, step: int) -> None:
        keep = bisect.bisect_left(self._steps, step)
        del self._steps[keep:]
        for series in self._series.values():
            del series[keep:]
        self._closed = {}


def _low_and_high(values: array[float]) -> tuple[float, float]:
    """Minimum and maximum of ``values``, in the order in which they came; NaN where there is no number."""
    if math.isnan(sum(values)):  # also of infinities of both signs, which costs a little and harms nothing
        values = array("d", [value for value in values if not math.isnan(value)])
        if not values:
            return NAN, NAN
    low, high = min(values), max(values)
    return (low, high) if values.index(low) <= values.index(high) else (high, low)


class MetricCurves:
    """Curves that lines of metrics are added to as they come, wherever they come from."""

    def __init__(self) -> None:
        self._curves = Curves()
        self._latest: dict[str, float] = {}
        self._taken_at = 0.0
        self._snapshot: MetricsSnapshot | None = MetricsSnapshot()

    def add(self, line: Mapping[str, object]) -> None:
        """Add one line of metrics, under any names that ``metric_names`` knows; one without a step is left out."""
        point = _point(line)
        if point is not None:
            self.add_point(*point)

    def add_point(self, step: int, values: dict[str, float]) -> None:
        """Add one line as ``parse_metrics`` gives it."""
        self._taken_at = values.get(TIME, self._taken_at)
        self._curves.add(step, values)
        self._latest.update((name, value) for name, value in values.items() if name != TIME and not math.isnan(value))
        self._snapshot = None

    def snapshot(self) -> MetricsSnapshot:
        """The curves so far; the same object until there is something new."""
        if self._snapshot is None:
            self._snapshot = self._told(*self._curves.thinned())
        return self._snapshot

    def every_step(self) -> MetricsSnapshot:
        """The curves so far with all of their steps: points of a thinned one are the least and the most of several."""
        return self._told(*self._curves.whole())

    def _told(self, steps: tuple[int, ...], series: dict[str, tuple[float, ...]]) -> MetricsSnapshot:
        times = series.pop(TIME, ())
        return MetricsSnapshot(
            steps=steps, series=series, times=times, latest=dict(self._latest), taken_at=self._taken_at
        )

    def means(self, prefix: str) -> dict[str, float]:
        """Mean of each metric whose name begins with ``prefix``, as in ``Curves``."""
        return self._curves.means(prefix)


class MetricsReader(MetricCurves):
    """Reads a run's metrics as they come."""

    def __init__(self, run_path: str) -> None:
        super().__init__()
        self.lines = AttemptLines(run_path, rundir.METRICS, self._take)
        self.step_times = StepTimes()

    def _take(self, attempt: int, lines: list[bytes]) -> None:
        for point in filter(None, map(parse_metrics, lines)):
            self.step_times.add(attempt, *point)
            self.add_point(*point)


def parse_metrics(line: bytes) -> tuple[int, dict[str, float]] | None:
    """Return step and numbers by canonical name of one line of metrics; None where it is none, or has no step."""
    return _point(parse_object(line) or {})


def _point(line: Mapping[str, object]) -> tuple[int, dict[str, float]] | None:
    values = canonical_values(line)
    step = values.pop("step", math.nan)
    if not 0 <= step <= MAX_STEP:
        return None
    return int(step), {plain(name): value for name, value in values.items()}
