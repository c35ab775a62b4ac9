"""The table of runs: keeps the selected run selected while rows come, go and move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from rltui.service.run_columns import Fold, fold_key, folded
from rltui.service.run_filter import expanded, matches
from rltui.tui.spans import Line
from rltui.tui.views import runs as view
from rltui.tui.widgets.list_pane import ListPane
from rltui.watch.snapshots import RunIdentity, RunsSnapshot, RunSummary


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
        self._name_cells, self._wide_cells = view.name_cells(()), view.wide_cells(())
        """All runs that fit."""
        self.lines: list[RunSummary | Fold] = []
        """The same, where those that belong together are one line."""
        self._open: set[str] = set()
        self.order = ""
        self.times: view.Times = "age"
        self.columns: tuple[str, ...] = ()
        self._several = False
        self._away: Mapping[str, float] = {}
        self._now = 0.0
        self._marks: set[RunIdentity] = set()
        self._awaited: RunIdentity | None = None
        self.baseline = ""
        """The run that others are held against, as a word; empty: none."""
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

    def do_times(self) -> None:
        """Show since when, or day and hour."""
        self.times = "date" if self.times == "age" else "age"
        self.repaint()

    def show_columns(self, words: tuple[str, ...]) -> None:
        """Show these columns, by their words; none: the usual ones."""
        self.columns = words
        self.repaint()

    def _select(self) -> None:
        chosen = self._line_id(self.line) if self.line is not None else None
        query = expanded(self.query_words, self.saved, half_typed=True)
        self.rows = [
            run
            for run in self._snapshot.runs
            if self.cluster in ("", run.cluster) and matches(run, query, self._snapshot.taken_at)
        ]
        if self.order:
            self.rows.sort(key=view.ORDERS[self.order])
        self._name_cells, self._wide_cells = view.name_cells(self.rows), view.wide_cells(self.rows)
        self._fold(chosen)

    def _fold(self, chosen: str | RunIdentity | None) -> None:
        """Put runs together that belong together, and the cursor where it was."""
        self.lines = []
        for one in folded(self.rows):
            self.lines.append(one)
            if isinstance(one, Fold) and one.key in self._open:
                self.lines += one.runs
        if any(run.identity == self._awaited for run in self.rows):
            chosen, self._awaited = self._awaited, None
        ids = [self._line_id(one) for one in self.lines]
        if chosen in ids:
            self.cursor = ids.index(chosen)
        elif chosen is not None:  # it may have become one of several
            holding = (place for place, one in enumerate(self.lines) if self._holds(one, chosen))
            self.cursor = next(holding, self.cursor)
        self.cursor = min(self.cursor, max(0, len(ids) - 1))
        self.repaint()

    @staticmethod
    def _holds(one: RunSummary | Fold, chosen: str | RunIdentity) -> bool:
        return isinstance(one, Fold) and any(run.identity == chosen for run in one.runs)

    @staticmethod
    def _line_id(one: RunSummary | Fold) -> str | RunIdentity:
        return one.key if isinstance(one, Fold) else one.identity

    def unfold(self) -> bool:
        """Show each run of the line under the cursor, or put it and those that belong to it together again.

        Returns:
            Whether there is anything that belongs together.
        """
        one = self.line
        key = one.key if isinstance(one, Fold) else fold_key(one) if one is not None else ""
        known = {each.key for each in self.lines if isinstance(each, Fold)}
        if key not in known:
            return False
        self._open ^= {key}
        self._fold(key)
        return True

    def go_to_first(self) -> None:
        """Go to the first run, also where several stand there as one line: then each is shown."""
        self.cursor = 0
        one = self.line
        if isinstance(one, Fold):
            if one.key not in self._open:
                self.unfold()
            self.cursor = 1
        self.repaint()

    @property
    def marked(self) -> tuple[RunIdentity, ...]:
        """The marked runs that are shown, in the order of the list: what is out of sight is not acted on."""
        return tuple(run.identity for run in self.rows if run.identity in self._marks)

    def mark(self) -> None:
        """Mark what is under the cursor, one run or all of a line, or take the mark away, and go to the next."""
        if self.line is not None:
            ids = {run.identity for run in self._runs_of(self.line)}
            self._marks = self._marks - ids if ids <= self._marks else self._marks | ids
            self.move(1)
            self.repaint()

    def do_mark_all(self) -> None:
        """Mark all that are shown; where they are, none."""
        shown = {run.identity for run in self.rows}
        self._marks = set() if shown <= self._marks else shown
        self.repaint()

    @property
    def compared(self) -> tuple[RunIdentity, ...]:
        """The runs that a comparison is of: the baseline, also out of sight, and the marked ones."""
        known = (run.identity for run in self._snapshot.runs if run.identity.is_called(self.baseline))
        return tuple(dict.fromkeys((*known, *self.marked)))

    def pin(self, word: str) -> None:
        """Make a run the baseline; empty: none."""
        self.baseline = word
        self.repaint()

    def unmark(self) -> None:
        """Take the marks off all runs."""
        self._marks.clear()
        self.repaint()

    def choose(self, run: RunIdentity) -> None:
        """Put the cursor on a run once it is shown: one that was launched a moment ago is in no picture yet."""
        self._awaited = run
        self._fold(self._line_id(self.line) if self.line is not None else None)

    def go_to(self, index: int) -> None:
        """Put the cursor at a row; whoever moves it waits for no run any more."""
        self._awaited = None
        super().go_to(index)

    @property
    def selected(self) -> RunSummary | None:
        """The run under the cursor; None also where several stand there as one line."""
        one = self.line
        return None if isinstance(one, Fold) else one

    @property
    def line(self) -> RunSummary | Fold | None:
        """What is under the cursor: a run, or several as one line."""
        return self.lines[self.cursor] if self.cursor < len(self.lines) else None

    @property
    def pictured(self) -> RunSummary | None:
        """The run whose picture is shown: of several as one line the first."""
        one = self.line
        return one.runs[0] if isinstance(one, Fold) else one

    @staticmethod
    def _runs_of(one: RunSummary | Fold) -> tuple[RunSummary, ...]:
        return one.runs if isinstance(one, Fold) else (one,)

    def build(self) -> Sequence[Line]:
        """Head and visible rows, all by one plan of the columns."""
        self._layout = self._plan()
        return super().build()

    def _plan(self) -> view.Plan:
        several, marks = self._several and not self.cluster, bool(self.marked)
        baseline = next((self.baseline for run in self.rows if run.identity.is_called(self.baseline)), "")
        return view.plan(
            self.size.width,
            self._name_cells,
            several,
            self.times,
            marks,
            self.columns,
            baseline,
            self.order,
            self._wide_cells,
        )

    @override
    def head(self) -> Sequence[Line]:
        return [view.head(self._layout)] if self.rows else []

    @override
    def count(self) -> int:
        return len(self.lines)

    def row(self, index: int) -> Line:
        """One run, or several that belong together."""
        run = self.lines[index]
        if isinstance(run, Fold):
            marked = self._marks.issuperset(one.identity for one in run.runs)
            here = self.is_selected(index)
            return view.fold_row(run, self._layout, here, self.glyphs, run.key in self._open, marked)
        return view.row(
            run,
            self._layout,
            self.is_selected(index),
            self.glyphs,
            self._snapshot.taken_at,
            self._stale_s(run),
            run.identity in self._marks,
        )

    def empty(self) -> Sequence[Line]:
        """What a list without runs teaches."""
        return view.empty(self._snapshot, self.query_words, self._fetched, self.glyphs, self.cluster)
