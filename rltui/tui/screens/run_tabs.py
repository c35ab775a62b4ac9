"""The tabs of an open run, and its screen as far as they go; the pane of each is made when it is first opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from textual.containers import Container
from textual.reactive import var
from textual.widget import Widget

from rltui.plugins import Plugin
from rltui.tui.screens.run_actions import RunActions
from rltui.tui.views import history, parts, queues
from rltui.tui.widgets.actors_pane import ActorsPane
from rltui.tui.widgets.bars import TabBar
from rltui.tui.widgets.config_pane import ConfigPane
from rltui.tui.widgets.gpus_pane import GpusPane
from rltui.tui.widgets.list_pane import ListPane
from rltui.tui.widgets.log_pane import LogPane
from rltui.tui.widgets.metrics_pane import MetricsPane
from rltui.tui.widgets.run_panes import LinesPane, OverviewPane
from rltui.tui.widgets.samples_pane import SamplesPane
from rltui.watch.log_search import LogQuery
from rltui.watch.snapshots import LogFile, RunSnapshot, RunSummary

TabPane = LinesPane | ActorsPane | LogPane | OverviewPane | GpusPane | SamplesPane | ConfigPane


class Tab(NamedTuple):
    """A tab of the run screen: its id, its title, and what it shows."""

    id: str
    title: str
    pane: Callable[[], TabPane]


TABS: tuple[Tab, ...] = (
    Tab("overview", "Overview", lambda: OverviewPane(id="overview")),
    Tab("gpus", "GPUs", lambda: GpusPane(id="gpus")),
    Tab("actors", "Actors", lambda: ActorsPane(id="actors")),
    Tab("queues", "Queues", lambda: LinesPane(queues.tab, queues.tab_head, id="queues")),
    Tab("metrics", "Metrics", lambda: MetricsPane(id="metrics")),
    Tab("logs", "Logs", lambda: LogPane(id="logs")),
    Tab("events", "Events", lambda: LinesPane(parts.events, parts.events_head, id="events")),
    Tab("history", "History", lambda: LinesPane(history.tab, history.head, id="history")),
    Tab("samples", "Samples", lambda: SamplesPane(id="samples")),
    Tab("config", "Config", lambda: ConfigPane(id="config")),
)


def all_tabs() -> tuple[Tab, ...]:
    """The tabs, and those of plug-ins behind them."""
    from rltui.plugins import PANELS, plugins

    return (*TABS, *(_plugin_tab(plugin) for plugin in plugins(PANELS)))


def _plugin_tab(plugin: Plugin) -> Tab:
    lines, head = partial(parts.panel, plugin), partial(parts.panel_head, plugin)
    return Tab(f"plugin:{plugin.name}", plugin.name, lambda: LinesPane(lines, head, id=None))


NUMBERS = {tab.id: number for number, tab in enumerate(TABS)}
"""Place of each tab."""


class TabsScreen(RunActions):
    """The screen of an open run, as far as its tabs go.

    Attributes:
        log_name: Which log is wanted, as in ``LogSnapshot``.
        tabs: All of them.
        tab_bar: Which one is in sight.
    """

    snapshot: var[RunSnapshot | None] = var(None, init=False)

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.log_name = ""
        self.tabs: Sequence[Tab] = all_tabs()
        self.tab_bar = TabBar([tab.title for tab in self.tabs])
        self.panes: dict[int, TabPane] = {0: TABS[0].pane()}
        self.content = Container(self.panes[0], id="content")

    def body(self) -> Sequence[Widget]:
        """Tab bar and the current tab."""
        return [self.tab_bar, self.content]

    def open_tab(self, index: int) -> None:
        """Show a tab, making its pane the first time."""
        index %= len(self.tabs)
        if not self.content.is_attached:
            return
        if index not in self.panes:
            self.panes[index] = self.tabs[index].pane()
            self.content.mount(self.panes[index])
        for number, pane in self.panes.items():
            pane.display = number == index
        self.tab_bar.show(index)
        self.show_tab(index)
        if index == NUMBERS["config"]:
            self.cockpit.controller.ask_config(self.run_id)
        self.tick()

    def show_tab(self, index: int) -> None:
        """Give the pane of a tab the newest picture."""

    @property
    def target(self) -> RunSummary | None:
        """The run that keys act on; None until it was read."""
        return self.snapshot.summary if self.snapshot is not None else None

    @property
    def tab(self) -> str:
        """Id of the current tab."""
        return self.tabs[self.tab_bar.current].id

    @property
    def log_pane(self) -> LogPane | None:
        """The log's pane, once it was opened."""
        pane = self.panes.get(NUMBERS["logs"])
        return pane if isinstance(pane, LogPane) else None

    @property
    def samples_pane(self) -> SamplesPane | None:
        """The samples' pane, where it is in sight."""
        pane = self.panes.get(NUMBERS["samples"])
        return pane if isinstance(pane, SamplesPane) and self.tab == "samples" else None

    @property
    def config_pane(self) -> ConfigPane | None:
        """The settings' pane, where it is in sight."""
        pane = self.panes.get(NUMBERS["config"])
        return pane if isinstance(pane, ConfigPane) and self.tab == "config" else None

    @property
    def filtered_pane(self) -> ConfigPane | GpusPane | ActorsPane | None:
        """The pane in sight that a filter narrows."""
        pane = self.panes.get(self.tab_bar.current)
        return pane if isinstance(pane, ConfigPane | GpusPane | ActorsPane) else None

    @property
    def log_files(self) -> tuple[LogFile, ...]:
        """The logs that the run has; none until it was read."""
        return self.snapshot.logs if self.snapshot is not None else ()

    def mover(self) -> ListPane | None:
        """The current tab, if it scrolls."""
        pane = self.panes.get(self.tab_bar.current)
        return None if isinstance(pane, OverviewPane) else pane

    @property
    def node(self) -> str:
        """The first node in sight of the tab of GPUs."""
        pane = self.panes.get(NUMBERS["gpus"])
        return pane.node if isinstance(pane, GpusPane) and self.tab == "gpus" else ""

    def open_hit(self, name: str, line: int, offset: int, query: LogQuery) -> None:
        """Show a hit of a search, of which is known where it begins."""
