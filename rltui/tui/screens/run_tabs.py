"""The tabs of an open run; the pane of each is made when it is first opened."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from rltui.plugins import Plugin
from rltui.tui.views import history, panel, queues, tabs
from rltui.tui.widgets.actors_pane import ActorsPane
from rltui.tui.widgets.config_pane import ConfigPane
from rltui.tui.widgets.gpus_pane import GpusPane
from rltui.tui.widgets.log_pane import LogPane
from rltui.tui.widgets.metrics_pane import MetricsPane
from rltui.tui.widgets.run_panes import LinesPane, OverviewPane
from rltui.tui.widgets.samples_pane import SamplesPane

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
    Tab("events", "Events", lambda: LinesPane(tabs.events, tabs.events_head, id="events")),
    Tab("history", "History", lambda: LinesPane(history.tab, history.head, id="history")),
    Tab("samples", "Samples", lambda: SamplesPane(id="samples")),
    Tab("config", "Config", lambda: ConfigPane(id="config")),
)


def all_tabs() -> tuple[Tab, ...]:
    """The tabs, and those of plug-ins behind them."""
    from rltui.plugins import PANELS, plugins

    return (*TABS, *(_plugin_tab(plugin) for plugin in plugins(PANELS)))


def _plugin_tab(plugin: Plugin) -> Tab:
    lines, head = partial(panel.lines, plugin), partial(panel.head, plugin)
    return Tab(f"plugin:{plugin.name}", plugin.name, lambda: LinesPane(lines, head, id=None))


NUMBERS = {tab.id: number for number, tab in enumerate(TABS)}
"""Place of each tab."""
