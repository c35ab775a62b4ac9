"""The table of runs: keeps the selected run selected while rows come, go and move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.service.run_filter import matches
from rltui.service.saved_filters import expanded
from rltui.tui.views import runs as view
from rltui.tui.widgets.list_pane import ListPane
from rltui.watch.snapshots import RunsSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rltui.tui.spans import Line
    from rltui.watch.snapshots import RunSummary


class RunsTable(ListPane):
    """All runs that fit the filter."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._snapshot = RunsSnapshot()
        self._fetched = False
        self.query_words = ""
        self.saved: Mapping[str, str] = {}
        """Name → words of the filters that can be called as ``@name``."""
        self.cluster = ""
        self.rows: list[RunSummary] = []
        self.order = ""
        self.times: view.Times = "age"
        self.columns: tuple[str, ...] = ()
        self._several = False
        self._away: Mapping[str, float] = {}
        self._now = 0.0
        self._marks: set[str] = set()
        self._layout = view.plan(80, 14)

    def show(self, snapshot: RunsSnapshot, several_clusters: bool = False) -> None:
        """Take another picture of all runs.

        Args:
            snapshot: The runs.
            several_clusters: Whether a column says which cluster each is on.
        """
        self._snapshot = snapshot
        self._several = several_clusters
        self._fetched = True
        self._select()

    def show_away(self, away: Mapping[str, float], now: float) -> None:
        """Clusters that do not answer → seconds since they did: their runs are an old picture.

        Args:
            away: The clusters; 0 seconds where one has not answered since the cockpit was opened.
            now: Epoch seconds.
        """
        self._now = now
        if away or self._away:
            self._away = dict(away)
            self.repaint()

    def _stale_s(self, run: RunSummary) -> float | None:
        since = self._away.get(run.cluster)
        if since is None:
            return None
        return since or (max(0.0, self._now - run.as_of) if run.as_of else 0.0)

    def narrow_to(self, cluster: str) -> None:
        """Show only runs of one cluster; empty: of all."""
        self.cluster = cluster
        self._select()

    def narrow(self, words: str) -> None:
        """Show only runs that fit ``words``."""
        self.query_words = words
        self._select()

    def sort_by(self, order: str) -> None:
        """Another order of ``view.ORDERS``; empty: as the services give them, the newest first."""
        self.order = order
        self._select()

    def toggle_times(self) -> None:
        """Show since when, or day and hour."""
        self.times = "date" if self.times == "age" else "age"
        self.repaint()

    def show_columns(self, words: tuple[str, ...]) -> None:
        """Show these columns, by their words; none: the usual ones."""
        self.columns = words
        self.repaint()

    def _select(self) -> None:
        chosen = self.selected.run_id if self.selected is not None else None
        query = expanded(self.query_words, self.saved, half_typed=True)
        self.rows = [
            run
            for run in self._snapshot.runs
            if self.cluster in ("", run.cluster) and matches(run, query, self._snapshot.taken_at)
        ]
        if self.order:
            self.rows.sort(key=view.ORDERS[self.order])
        ids = [run.run_id for run in self.rows]
        if chosen in ids:
            self.cursor = ids.index(chosen)
        self.cursor = min(self.cursor, max(0, len(ids) - 1))
        self.repaint()

    @property
    def marked(self) -> tuple[str, ...]:
        """Ids of the marked runs that are shown, in the order of the list: what is out of sight is not acted on."""
        return tuple(run.run_id for run in self.rows if run.run_id in self._marks)

    def mark(self) -> None:
        """Mark the run under the cursor, or take its mark away, and go to the next."""
        if self.selected is not None:
            self._marks ^= {self.selected.run_id}
            self.move(1)
            self.repaint()

    def mark_all(self) -> None:
        """Mark all that are shown; where they are, none."""
        shown = {run.run_id for run in self.rows}
        self._marks = set() if shown <= self._marks else shown
        self.repaint()

    def unmark(self) -> None:
        """Take all marks away."""
        self._marks.clear()
        self.repaint()

    def choose(self, run_id: str) -> None:
        """Put the cursor on a run, if it is shown."""
        for index, run in enumerate(self.rows):
            if run.run_id == run_id:
                self.go_to(index)

    @property
    def selected(self) -> RunSummary | None:
        """The run under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def build(self) -> Sequence[Line]:
        """Head and visible rows, all by one plan of the columns."""
        self._layout = self._plan()
        return super().build()

    def _plan(self) -> view.Plan:
        longest = max((len(run.run_id) for run in self.rows), default=3)
        several, marks = self._several and not self.cluster, bool(self.marked)
        return view.plan(self.size.width, max(14, min(longest, 40)), several, self.times, marks, self.columns)

    def head(self) -> Sequence[Line]:
        """Titles of the columns."""
        return [view.head(self._layout)] if self.rows else []

    def count(self) -> int:
        """Number of runs shown."""
        return len(self.rows)

    def row(self, index: int) -> Line:
        """One run."""
        run = self.rows[index]
        return view.row(
            run,
            self._layout,
            self.is_selected(index),
            self.glyphs,
            self._snapshot.taken_at,
            self._stale_s(run),
            run.run_id in self._marks,
        )

    def empty(self) -> Sequence[Line]:
        """What a list without runs teaches."""
        return view.empty(self._snapshot, self.query_words, self._fetched, self.glyphs, self.cluster)
