"""The pane of metrics: charts that share a cursor, a window and an axis; one of them alone, or all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partialmethod

from typing_extensions import override

from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import Line
from rltui.tui.views import chart_view, charts, metrics
from rltui.tui.views.chart_view import ChartView
from rltui.tui.views.charts import ChartPage
from rltui.tui.widgets.run_panes import LinesPane
from rltui.watch.snapshots import RunSnapshot


class MetricsPane(LinesPane):
    """All series of a run.

    Attributes:
        view: How they are looked at.
        alone: The series that is shown alone; empty: all are.
        beside: The run that is drawn over this one; None: there is none.
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(self._charts, self._about, id=id)
        self.view = ChartView()
        self.alone = ""
        self.beside: RunSnapshot | None = None

    def _chart_page(self, snapshot: RunSnapshot) -> ChartPage:
        return charts.chart_page(snapshot, self.view, self.beside)

    def _charts(self, snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Sequence[Line]:
        return metrics.rows(self._chart_page(snapshot), width, glyphs)

    def _about(self, snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Sequence[Line]:
        return metrics.head(self._chart_page(snapshot), width, glyphs)

    @property
    def names(self) -> list[str]:
        """All series, in their order."""
        return charts.ordered_names(self._snapshot.metrics) if self._snapshot is not None else []

    def build(self) -> Sequence[Line]:
        """All charts, or the one that is alone."""
        if self._snapshot is None or self.alone not in self.names:
            return super().build()
        head = list(self.head())
        width, height = self.size
        return [
            *head,
            *metrics.alone(self._chart_page(self._snapshot), self.alone, width, height - len(head), self.glyphs),
        ]

    def move(self, rows: int) -> None:
        """Scroll, or go to another series where one is alone."""
        if self.alone not in self.names:
            super().move(rows)
            return
        names = self.names
        self.alone = names[min(max(0, names.index(self.alone) + rows), len(names) - 1)]
        self.repaint()

    def go_to(self, index: int) -> None:
        """Scroll to a row; where one series is alone, the first or last of all."""
        if self.alone in self.names:
            self.move(-len(self.names) if index <= 0 else len(self.names))
        else:
            super().go_to(index)

    def _look(self, view: ChartView) -> None:
        self.view = view
        self.anew()

    def show_beside(self, beside: RunSnapshot | None) -> None:
        """Draw another run over this one, or none."""
        self.beside = beside
        self.anew()

    def do_whole(self) -> None:
        """Show the first chart in sight alone, or all again, with that one in sight."""
        if self._snapshot is None or not self.names:
            return
        rows = metrics.first_rows(self._chart_page(self._snapshot), self.size.width, self.glyphs)
        if self.alone:
            row, self.alone = rows.get(self.alone, 0), ""
            self.top = min(max(self.top, row + charts.CELL_HEIGHT - self.room), row)
        else:
            in_sight = (name for name, row in rows.items() if row >= self.top)
            self.alone = next(in_sight, self.names[-1])
        self.anew()

    def back_to_all(self) -> bool:
        """Show all charts again; whether one was alone."""
        if was_alone := bool(self.alone):
            self.do_whole()
        return was_alone

    # --- how they are looked at

    @override
    def pan(self, step: int) -> None:
        if self._snapshot is not None:
            width = self.size.width if self.alone else charts.chart_columns(self.size.width)[0]
            page = self._chart_page(self._snapshot)
            columns = width - charts.LABELS_WIDTH
            self._look(chart_view.moved(self.view, page.places, page.whole, columns, step))

    def _zoom(self, factor: float) -> None:
        if self._snapshot is not None:
            page = self._chart_page(self._snapshot)
            self._look(chart_view.zoomed(self.view, page.places, page.whole, factor))

    do_zoom_in = partialmethod(_zoom, 0.5)
    do_zoom_out = partialmethod(_zoom, 2.0)

    def do_log_y(self) -> None:
        """Draw the logarithm of values, or the values."""
        self._look(self.view._replace(log_y=not self.view.log_y))

    def do_smooth(self) -> None:
        """Draw with the next width of smoothing, or with none."""
        self._look(chart_view.next_smoothing(self.view))

    def next_axis(self) -> bool:
        """Draw over the next axis that is known; whether there is another."""
        before = self.view.axis
        if self._snapshot is not None:
            self._look(chart_view.next_axis(self.view, self._snapshot))
        return self.view.axis != before

    def clear(self) -> bool:
        """Leave cursor and window; whether there was anything to leave."""
        if moved := self.view.cursor is not None or self.view.window is not None:
            self._look(self.view._replace(cursor=None, window=None))
        return moved
