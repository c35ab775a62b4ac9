"""The home screen: all runs, and the picture of the one under the cursor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partialmethod
from typing import TYPE_CHECKING, ClassVar

from textual.containers import Container
from textual.reactive import var
from typing_extensions import override

from rltui.service.run_columns import LEAST, place_of
from rltui.tui import messages
from rltui.tui.keys import KeyContext, KeyTable
from rltui.tui.picking import after
from rltui.tui.refresh import IDLE_S, TICK_S
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.screens.run_actions import RunActions, Target, nodes_of
from rltui.tui.screens.runs_keys import KEYS, ListKeys, SavedFilters
from rltui.tui.views import clusters as cluster_views
from rltui.tui.views import runs as view
from rltui.tui.widgets.run_panes import LogTail, OverviewPane
from rltui.tui.widgets.runs_table import RunsTable
from rltui.watch.snapshots import LIVE_STATES, RunSnapshot, RunsSnapshot

if TYPE_CHECKING:
    from textual.timer import Timer
    from textual.widget import Widget

    from rltui.tui.messages import CockpitMessage
    from rltui.tui.refresh import Source
    from rltui.tui.spans import Span
    from rltui.watch.snapshots import RunIdentity, RunState, RunSummary

SETTLE_S = 0.08
"""Seconds that the cursor rests before the run under it is read: moving fast reads nothing."""


class RunsScreen(CockpitScreen, inherit_bindings=False):
    """All runs as a table, with a detail of the selected one beside it."""

    KEYS: ClassVar[KeyTable] = KEYS
    OPENS: ClassVar[str] = "open"
    SOURCE: ClassVar[Source] = "runs"

    snapshot: var[RunsSnapshot] = var(RunsSnapshot(), init=False)

    pane: RunsTable

    def __init__(self) -> None:
        super().__init__()
        self.table = self.pane = RunsTable(id="table")
        self.list_keys = ListKeys(self, self.table)
        self.filters = SavedFilters(self, self.table)
        self.actions = RunActions(self, lambda: Target(self.target, self.table.marked))
        self.parts = (self.list_keys, self.filters, self.actions)
        self.detail = OverviewPane(id="detail")
        self.tail = LogTail(id="tail")
        self.list = Container(self.table, self.tail, id="list")
        self._settling: Timer | None = None
        self._clusters: tuple[str, ...] = ()

    @override
    def body(self) -> Sequence[Widget]:
        return [Container(self.list, self.detail, id="body")]

    def on_mount(self) -> None:
        """Show it as the user chose to."""
        self.list_keys.show_kept()
        self.filters.read()
        super().on_mount()

    def watch_snapshot(self, snapshot: RunsSnapshot) -> None:
        """Show another picture of all runs."""
        self._name_clusters()
        self.table.show(snapshot, len(self._clusters) > 1)
        self._show_selected()

    def _name_clusters(self) -> None:
        profiles = [cluster.name for cluster in self.cockpit.pictures.clusters]
        self._clusters = view.cluster_names(self.snapshot.runs, profiles)

    @property
    def target(self) -> RunSummary | None:
        """The run under the cursor."""
        return self.table.selected

    def receive(self, message: CockpitMessage) -> None:
        """Take pictures of all runs, and of the one under the cursor."""
        self.actions.receive(message)
        if isinstance(message, messages.RunsFetched):
            self.snapshot = message.snapshot
            self.tick()
        elif isinstance(message, messages.RunFetched) and message.run == self._selected:
            self._show_detail()
        elif isinstance(message, messages.ClustersFetched):
            self._name_clusters()
            if self.cockpit.pictures.runs.taken_at:
                self.table.show(self.snapshot, len(self._clusters) > 1)
            self.tick()
        elif isinstance(message, messages.ActionDone) and message.ask.others:
            self.table.unmark()
            self.tick()

    def tick(self) -> None:
        """Ages grow, also those of clusters that are away."""
        now = self.cockpit.wall_clock()
        self.table.show_away(self.cockpit.pictures.away(now), now)
        super().tick()

    def tick_s(self) -> float:
        """Rarely where nothing lives, and neither the list nor a cluster shows how old it is."""
        pictures, health = self.cockpit.pictures, self.cockpit.health(self.SOURCE)
        shows_age = health.freshness != "fresh" or any(cluster.problem for cluster in pictures.clusters)
        return TICK_S if shows_age or pictures.num_live else IDLE_S

    def catch_up(self) -> None:
        """Show the newest list, and the newest picture of the selected run."""
        if self.cockpit.pictures.runs.taken_at:
            self.snapshot = self.cockpit.pictures.runs
        self._show_detail()

    def _show_selected(self) -> None:
        self._share_height()
        self._show_detail()
        if self._settling is not None:
            self._settling.stop()
        self._settling = self.set_timer(SETTLE_S, self._watch_selected)

    def _watch_selected(self) -> None:
        if self.on_top:
            self.cockpit.controller.watch_log("")  # what was chosen for an open run is no log of another
            self.cockpit.controller.watch_run(self._selected, is_open=False)

    def _show_detail(self) -> None:
        run = self.table.pictured
        if run is None:
            self.detail.show(None, ())
            self.tail.show(None)
            return
        known = self.cockpit.pictures.run(run.identity)
        snapshot = known or RunSnapshot(summary=run, taken_at=self.snapshot.taken_at)
        self.detail.show(snapshot, self._title(snapshot.summary))
        self.tail.show(snapshot)

    def _title(self, run: RunSummary) -> tuple[Span, ...]:
        dot = self.cockpit.glyphs.dot
        job = f" {dot} job {run.job.job_id}" if run.job is not None else ""
        return ((run.run_id, "title"), (f" {dot} {place_of(run)}{job} {dot} attempt {run.attempt}", "dim"))

    def _share_height(self) -> None:
        size = self.app.size
        side_by_side = size.width >= view.SIDE_BY_SIDE_FROM
        _, rows = view.table_size(self.table.count(), size.width, size.height)
        detail = rows < size.height - 2
        self.detail.display = detail
        self.tail.display = detail and side_by_side
        self.detail.with_log = not side_by_side
        self.table.styles.height = rows if detail else "1fr"
        self.list.styles.height = rows if detail and not side_by_side else "1fr"

    def on_resize(self) -> None:
        """Share the rows of the new size."""
        self._share_height()

    def on_screen_resume(self) -> None:
        """Read the selected run again."""
        super().on_screen_resume()
        self._show_selected()

    def moved(self) -> None:
        """Show the run under the cursor."""
        self._show_selected()
        self.tick()

    @override
    def key_context(self) -> KeyContext:
        run, pictures, marked = self.table.selected, self.cockpit.pictures, self.table.marked
        return KeyContext(
            readonly=self.cockpit.readonly,
            run_state=self._state_of(marked) if marked else run.state if run is not None else "",
            owner=run.owner if run is not None and not marked else "",
            num_marked=len(marked),
            num_compared=len(self.table.compared),
            num_nodes=len(nodes_of(run, self.cockpit)),
            num_clusters=len(self._clusters),
            needs_you=bool(pictures.needs_you),
            on_fold=self.table.line is not None and run is None,
        )

    def _state_of(self, marked: Sequence[RunIdentity]) -> RunState:
        """A live one's where there is one: what can be done to one of them can be asked for."""
        known = set(marked)
        states = [run.state for run in self.table.rows if run.identity in known]
        return next((state for state in states if state in LIVE_STATES), states[0])

    def state_spans(self) -> Sequence[Span]:
        """Counts of all runs by state, and clusters that are away."""
        shown, runs = len(self.table.rows), self.snapshot.runs
        words, glyphs = self.table.query_words, self.cockpit.glyphs
        spans: list[Span] = [(f"{shown} of {len(runs)} ", "text"), (f"/{words}  ", "match")] if words else []
        spans += [(f"{len(self.table.marked)} marked  ", "match")] if self.table.marked else []
        spans += [(f"by {self.table.order}  ", "accent")] if self.table.order else []
        spans += [(f"{self.table.cluster} only  ", "accent")] if self.table.cluster else []
        spans += view.totals(runs, glyphs)
        now = self.cockpit.wall_clock()
        away = [cluster for cluster in self.cockpit.pictures.clusters if cluster.problem or cluster.needs_attention]
        return (*spans, *(cluster_views.stale_words(cluster, now, glyphs) for cluster in away))

    @property
    def _selected(self) -> RunIdentity | None:
        """The run whose picture is shown."""
        return self.table.pictured.identity if self.table.pictured is not None else None

    def do_open(self) -> None:
        """Open the selected run, or show each of several."""
        if self.table.selected is None and self.table.line is not None:
            self.do_fold()
            return
        if self._selected is not None:
            self.cockpit.open_run(self._selected)

    def do_fold(self) -> None:
        """Show each of several runs that stand as one line, or put them together again."""
        if self.table.unfold():
            self.moved()
        else:
            said = f"this run is by itself: {LEAST} or more of one sweep or array of jobs are one line"
            self.cockpit.say(said, "warning")

    def do_launch(self) -> None:
        """Open the launch screen on the presets."""
        self.cockpit.open("launch")

    def do_clusters(self) -> None:
        """Open the list of clusters."""
        self.cockpit.open("clusters")

    def do_queue(self) -> None:
        """Open the queue of the cluster that is looked at."""
        from rltui.cluster.profile import LOCAL

        run = self.table.pictured
        self.cockpit.open("queue", self.table.cluster or (run.cluster if run is not None else LOCAL))

    def do_answer(self) -> None:
        """Answer the cluster that needs somebody."""
        self.cockpit.controller.connect(self.cockpit.pictures.needs_you)

    def do_compare(self) -> None:
        """Show the marked runs side by side, against the baseline where there is one."""
        words = map(self.cockpit.pictures.name, self.table.compared)
        self.cockpit.open("output", ("compare", *words), False)

    def do_copy(self) -> None:
        """Copy the id of the selected run."""
        if self._selected is not None:
            self.cockpit.copy(self._selected.run_id, "run id")

    def do_help(self) -> None:
        """Show the keys, and the saved filters."""
        self.cockpit.open("help", self.filters.with_saved(self.bound))

    def _turn_to(self, step: int) -> None:
        self.table.narrow_to(after(("", *self._clusters), self.table.cluster, step))
        self._show_selected()

    do_next_cluster = partialmethod(_turn_to, 1)
    do_previous_cluster = partialmethod(_turn_to, -1)

    @override
    def leave(self) -> None:
        self.cockpit.leave()

    def do_escape(self) -> None:
        """Take the marks away; then clear the filter with its order, then show all clusters again."""
        if self.table.marked:
            self.table.unmark()
            return
        self.table.sort_by("")
        if not self.table.query_words and self.table.cluster:
            self.table.narrow_to("")
        self.narrow("")

    def narrow(self, words: str) -> None:
        """Show only runs that fit these words."""
        self.table.narrow(" ".join(words.split()))
        self._show_selected()
        self.tick()
