"""The tabs of an open run, and the keys that go from one to the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, partialmethod
from typing import NamedTuple, TypeVar

from textual.containers import Container

from rltui.plugins import Plugin
from rltui.tui.screens.base import CockpitScreen, Part
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
from rltui.watch.owners import ActorSnapshot

TabPane = LinesPane | ActorsPane | LogPane | OverviewPane | GpusPane | SamplesPane | ConfigPane
Opened = TypeVar("Opened", LogPane, MetricsPane, SamplesPane)


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


class Tabs(Part):
    """The tabs of an open run; the pane of each is made when it is first opened.

    Args:
        screen: Where they are.
        opened: Called when another one is in sight.

    Attributes:
        all: All of them.
        bar: Names them.
        content: Has the panes.
        panes: Those that were opened, by number.
        first: The one to open once the screen stands.
    """

    def __init__(self, screen: CockpitScreen, opened: Callable[[], None]) -> None:
        super().__init__(screen)
        self._opened = opened
        self.first = 0
        self.all: Sequence[Tab] = all_tabs()
        self.bar = TabBar([tab.title for tab in self.all], self.open)
        self.panes: dict[int, TabPane] = {0: TABS[0].pane()}
        self.content = Container(self.panes[0], id="content")
        for tab in TABS:
            setattr(self, f"do_tab_{tab.id}", partial(self.open, NUMBERS[tab.id]))

    def open(self, index: int) -> None:
        """Show a tab, making its pane the first time."""
        index %= len(self.all)
        if not self.content.is_attached:
            self.first = index
            return
        if index not in self.panes:
            self.panes[index] = self.all[index].pane()
            self.content.mount(self.panes[index])
        for number, pane in self.panes.items():
            pane.display = number == index
        self.bar.show(index)
        self._opened()

    @property
    def current(self) -> str:
        """Id of the tab in sight."""
        return self.all[self.bar.current].id

    @property
    def pane(self) -> TabPane | None:
        """The pane in sight."""
        return self.panes.get(self.bar.current)

    @property
    def list_pane(self) -> ListPane | None:
        """The pane in sight, if it scrolls."""
        return None if isinstance(self.pane, OverviewPane) else self.pane

    def opened(self, kind: type[Opened]) -> Opened | None:
        """The pane of a kind once it was opened, in sight or not: what it has asked for may come later."""
        return next((pane for pane in self.panes.values() if isinstance(pane, kind)), None)

    @property
    def log_pane(self) -> LogPane | None:
        """The log's pane, once it was opened."""
        return self.opened(LogPane)

    @property
    def samples_pane(self) -> SamplesPane | None:
        """The samples' pane, where it is in sight."""
        return self.pane if isinstance(self.pane, SamplesPane) else None

    @property
    def config_pane(self) -> ConfigPane | None:
        """The settings' pane, where it is in sight."""
        return self.pane if isinstance(self.pane, ConfigPane) else None

    @property
    def filtered_pane(self) -> ConfigPane | GpusPane | ActorsPane | None:
        """The pane in sight that a filter narrows."""
        return self.pane if isinstance(self.pane, ConfigPane | GpusPane | ActorsPane) else None

    @property
    def actor(self) -> ActorSnapshot | None:
        """The actor under the cursor, where actors are in sight."""
        return self.pane.actor if isinstance(self.pane, ActorsPane) else None

    @property
    def node(self) -> str:
        """The first node in sight of the tab of GPUs."""
        return self.pane.node if isinstance(self.pane, GpusPane) else ""

    def _turn(self, step: int) -> None:
        self.open(self.bar.current + step)

    do_next_tab = partialmethod(_turn, 1)
    do_previous_tab = partialmethod(_turn, -1)

    def _go(self, step: int) -> None:
        """The next node of the map of GPUs, else the next tab."""
        if not (isinstance(self.pane, GpusPane) and self.pane.sideways(step)):
            self._turn(step)

    do_go_right = partialmethod(_go, 1)
    do_go_left = partialmethod(_go, -1)

    def do_plugin_tab(self) -> None:
        """The next tab of a plug-in."""
        own, after = len(TABS), self.bar.current + 1
        self.open(after if own <= after < len(self.all) else own)
