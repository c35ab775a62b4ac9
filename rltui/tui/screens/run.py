"""One run: an overview, and a tab for each part that needs more room."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.containers import Container
from textual.reactive import var

from rltui.tui import formats, keys, messages
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.spans import clip
from rltui.tui.views import stage, tabs
from rltui.tui.widgets.bars import TabBar
from rltui.tui.widgets.log_pane import LogPane
from rltui.tui.widgets.run_panes import LinesPane, OverviewPane
from rltui.watch.snapshots import RunSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.widget import Widget

    from rltui.tui.keys import KeyContext, Scope
    from rltui.tui.messages import CockpitMessage
    from rltui.tui.refresh import Source
    from rltui.tui.spans import Span
    from rltui.tui.widgets.list_pane import ListPane
    from rltui.watch.snapshots import RunSummary


class Tab(NamedTuple):
    """One tab; its pane is made when it is first opened."""

    id: str
    title: str
    pane: Callable[[], LinesPane | LogPane | OverviewPane]


TABS: tuple[Tab, ...] = (
    Tab("overview", "Overview", lambda: OverviewPane(id="overview")),
    Tab("hosts", "Hosts", lambda: LinesPane(tabs.hosts, tabs.hosts_head, id="hosts")),
    Tab("actors", "Actors", lambda: LinesPane(tabs.actors, tabs.actors_head, id="actors")),
    Tab("metrics", "Metrics", lambda: LinesPane(tabs.metrics, tabs.metrics_head, id="metrics")),
    Tab("logs", "Logs", lambda: LogPane(id="logs")),
    Tab("events", "Events", lambda: LinesPane(tabs.events, tabs.events_head, id="events")),
)

LOGS = next(index for index, tab in enumerate(TABS) if tab.id == "logs")


class RunScreen(CockpitScreen):
    """The open run."""

    SCOPE: ClassVar[Scope] = "run"
    SOURCE: ClassVar[Source] = "run"

    snapshot: var[RunSnapshot | None] = var(None, init=False)

    def __init__(self, run_id: str, summary: RunSummary | None, known: RunSnapshot | None) -> None:
        super().__init__(run_id)
        self.tab_bar = TabBar([tab.title for tab in TABS])
        self._panes: dict[int, LinesPane | LogPane | OverviewPane] = {0: TABS[0].pane()}
        self.content = Container(self._panes[0], id="content")
        first = RunSnapshot(summary=summary, taken_at=summary.stage.updated) if summary is not None else None
        self.set_reactive(RunScreen.snapshot, known or first)

    def body(self) -> Sequence[Widget]:
        """Tab bar and the current tab."""
        return [self.tab_bar, self.content]

    def on_mount(self) -> None:
        """Show what is known."""
        super().on_mount()
        self._show(0)

    def on_screen_resume(self) -> None:
        """Read this run often again."""
        super().on_screen_resume()
        self.cockpit.controller.watch_run(self.run_id, is_open=True)

    def watch_snapshot(self) -> None:
        """Show another picture of the run."""
        self._show(self.tab_bar.current)
        self.tick()

    def catch_up(self) -> None:
        """Show the newest picture of this run."""
        self.snapshot = self.cockpit.pictures.run(self.run_id) or self.snapshot

    def receive(self, message: CockpitMessage) -> None:
        """Take pictures of this run."""
        if isinstance(message, messages.RunFetched) and message.run_id == self.run_id:
            self.snapshot = message.snapshot

    def _show(self, index: int) -> None:
        pane, snapshot = self._panes.get(index), self.snapshot
        if pane is None or snapshot is None:
            return
        if isinstance(pane, OverviewPane):
            pane.show(snapshot, (("stage ", "title"), (snapshot.summary.stage.stage, "accent")))
        else:
            pane.show(snapshot)

    def open_tab(self, index: int) -> None:
        """Show a tab, making its pane the first time."""
        index %= len(TABS)
        if not self.content.is_attached:
            return
        if index not in self._panes:
            self._panes[index] = TABS[index].pane()
            self.content.mount(self._panes[index])
        for number, pane in self._panes.items():
            pane.display = number == index
        self.tab_bar.show(index)
        self._show(index)
        self.tick()

    @property
    def tab(self) -> str:
        """Id of the current tab."""
        return TABS[self.tab_bar.current].id

    @property
    def log_pane(self) -> LogPane | None:
        """The log's pane, once it was opened."""
        pane = self._panes.get(LOGS)
        return pane if isinstance(pane, LogPane) else None

    def key_context(self) -> KeyContext:
        """The run and the tab decide."""
        pane = self.log_pane
        return keys.KeyContext(
            readonly=self.cockpit.readonly,
            run_state=self.snapshot.summary.state if self.snapshot is not None else "",
            tab=self.tab,
            searching=self.tab == "logs" and pane is not None and bool(pane.words),
        )

    def crumbs(self) -> Sequence[str]:
        """The run."""
        return [self.run_id]

    def state_spans(self) -> Sequence[Span]:
        """State and size of the run."""
        if self.snapshot is None:
            return ()
        run, glyphs = self.snapshot.summary, self.cockpit.glyphs
        size = f"  {formats.shape(run.nodes, run.gpus_per_node, glyphs.times)} {run.gpu}"
        place = f"{size}  {clip(run.cluster, 20)}  attempt {run.attempt}" if self.app.size.width >= 90 else size
        return (*stage.state_spans(run, glyphs), (place, "dim"))

    def mover(self) -> ListPane | None:
        """The current tab, if it scrolls."""
        pane = self._panes.get(self.tab_bar.current)
        return None if isinstance(pane, OverviewPane) else pane

    def do_next_tab(self) -> None:
        """The tab to the right."""
        self.open_tab(self.tab_bar.current + 1)

    def do_previous_tab(self) -> None:
        """The tab to the left."""
        self.open_tab(self.tab_bar.current - 1)

    def do_tab_overview(self) -> None:
        """The first tab."""
        self.open_tab(0)

    def do_tab_hosts(self) -> None:
        """The second tab."""
        self.open_tab(1)

    def do_tab_actors(self) -> None:
        """The third tab."""
        self.open_tab(2)

    def do_tab_metrics(self) -> None:
        """The fourth tab."""
        self.open_tab(3)

    def do_tab_logs(self) -> None:
        """The fifth tab."""
        self.open_tab(LOGS)

    def do_tab_events(self) -> None:
        """The sixth tab."""
        self.open_tab(5)

    def do_cancel(self) -> None:
        """Ask what cancelling would do."""
        self.cockpit.question("cancel", self.run_id)

    def do_resubmit(self) -> None:
        """Ask what resubmitting would do."""
        self.cockpit.question("resubmit", self.run_id)

    def do_copy(self) -> None:
        """Copy the run's id, or a line of the log."""
        if self.tab == "logs" and self.log_pane is not None:
            self.cockpit.copy(self.log_pane.line_to_copy, "log line")
        else:
            self.cockpit.copy(self.run_id, "run id")

    def do_escape(self) -> None:
        """Clear the search, else go back."""
        pane = self.log_pane
        if self.tab == "logs" and pane is not None and pane.words:
            pane.search("")
        else:
            self.do_back()

    def do_follow(self) -> None:
        """Stay at the end of the log, or stop doing so."""
        self._in_log(lambda pane: pane.follow())

    def do_next_hit(self) -> None:
        """The next hit."""
        self._in_log(lambda pane: pane.step(1))

    def do_previous_hit(self) -> None:
        """The hit before."""
        self._in_log(lambda pane: pane.step(-1))

    def do_pan_left(self) -> None:
        """Long lines to the left."""
        self._in_log(lambda pane: pane.pan(-1))

    def do_pan_right(self) -> None:
        """Long lines to the right."""
        self._in_log(lambda pane: pane.pan(1))

    def _in_log(self, act: Callable[[LogPane], object]) -> None:
        if self.log_pane is not None:
            act(self.log_pane)

    def do_search(self) -> None:
        """Search the log."""
        self.open_tab(LOGS)
        self.ask("search", "/", self.log_pane.words if self.log_pane is not None else "", hint="words in the log")

    def typed(self, purpose: str, text: str) -> None:
        """Search while typing."""
        if purpose == "search":
            self._in_log(lambda pane: pane.search(text))

    def left(self, purpose: str) -> None:
        """Leaving the search clears it."""
        if purpose == "search":
            self._in_log(lambda pane: pane.search(""))
