"""The metrics of a run: the ``metrics.jsonl`` of all its attempts as one set of curves."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rltui.onnode import rundir
from rltui.onnode.metric_names import canonical_values
from rltui.watch.curves import Curves
from rltui.watch.history import StepTimes
from rltui.watch.lines import AttemptLines, parse_object
from rltui.watch.snapshots import MetricsSnapshot
from rltui.watch.text import plain

MAX_STEP = 10**15
TIME = "time"


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
            steps, series = self._curves.thinned()
            times = series.pop(TIME, ())
            self._snapshot = MetricsSnapshot(
                steps=steps, series=series, times=times, latest=dict(self._latest), taken_at=self._taken_at
            )
        return self._snapshot

    def means(self, prefix: str) -> dict[str, float]:
        """Mean of each metric whose name begins with ``prefix``, as in ``Curves``."""
        return self._curves.means(prefix)


class MetricsReader:
    """Reads a run's metrics as they come."""

    def __init__(self, run_path: str) -> None:
        self.lines = AttemptLines(run_path, rundir.METRICS, self._take)
        self._curves = MetricCurves()
        self.step_times = StepTimes()

    def snapshot(self) -> MetricsSnapshot:
        """The curves read so far; the same object until there is something new."""
        return self._curves.snapshot()

    def means(self, prefix: str) -> dict[str, float]:
        """Mean of each metric whose name begins with ``prefix``, as in ``Curves``."""
        return self._curves.means(prefix)

    def _take(self, attempt: int, lines: list[bytes]) -> None:
        for point in filter(None, map(parse_metrics, lines)):
            self.step_times.add(attempt, *point)
            self._curves.add_point(*point)


def parse_metrics(line: bytes) -> tuple[int, dict[str, float]] | None:
    """Return step and numbers by canonical name of one line of metrics; None where it is none, or has no step."""
    return _point(parse_object(line) or {})


def _point(line: Mapping[str, object]) -> tuple[int, dict[str, float]] | None:
    values = canonical_values(line)
    step = values.pop("step", math.nan)
    if not 0 <= step <= MAX_STEP:
        return None
    return int(step), {plain(name): value for name, value in values.items()}
