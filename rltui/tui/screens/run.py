"""One run: an overview, and a tab for each part that needs more room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.containers import Container
from textual.reactive import var
from textual.widget import Widget
from typing_extensions import override

from rltui.service.run_columns import place_of, size_of
from rltui.tui import messages
from rltui.tui.keys import KeyContext, KeyTable
from rltui.tui.messages import CockpitMessage
from rltui.tui.refresh import Source
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.screens.log_keys import LogKeys
from rltui.tui.screens.metric_keys import MetricKeys
from rltui.tui.screens.run_actions import RunActions, nodes_of
from rltui.tui.screens.run_keys import KEYS, TabKeys
from rltui.tui.screens.run_tabs import NUMBERS, TABS, Tab, TabPane, all_tabs
from rltui.tui.screens.sample_keys import SampleKeys
from rltui.tui.spans import Span, clip
from rltui.tui.views import stage
from rltui.tui.widgets.actors_pane import ActorsPane
from rltui.tui.widgets.bars import TabBar
from rltui.tui.widgets.config_pane import ConfigPane
from rltui.tui.widgets.gpus_pane import GpusPane
from rltui.tui.widgets.list_pane import ListPane
from rltui.tui.widgets.log_pane import NOTHING, LogPane
from rltui.tui.widgets.run_panes import OverviewPane
from rltui.tui.widgets.samples_pane import SamplesPane
from rltui.watch.log_search import LogQuery
from rltui.watch.snapshots import LogFile, LogPart, RunSnapshot, RunSummary


class RunScreen(CockpitScreen, inherit_bindings=False):
    """One run with its tabs: overview, metrics, GPUs, logs, samples and more."""

    KEYS: ClassVar[KeyTable] = KEYS
    OPENS: ClassVar[str] = "whole"
    SOURCE: ClassVar[Source] = "run"
    PARTS = (RunActions, LogKeys, SampleKeys, MetricKeys, TabKeys)

    snapshot: var[RunSnapshot | None] = var(None, init=False)

    def __init__(self, run_id: str, summary: RunSummary | None, known: RunSnapshot | None, tab: int = 0) -> None:
        super().__init__(run_id)
        self.log_name = ""
        self.in_log = self.part(LogKeys).in_log
        self.tabs: Sequence[Tab] = all_tabs()
        self.tab_bar = TabBar([tab.title for tab in self.tabs])
        self._first_tab = tab
        self._panes: dict[int, TabPane] = {0: TABS[0].pane()}
        self.content = Container(self._panes[0], id="content")
        self._wanted_part: tuple[str, int] | None = None
        self._wanted_query = NOTHING
        first = RunSnapshot(summary=summary, taken_at=summary.stage.updated) if summary is not None else None
        self.set_reactive(RunScreen.snapshot, known or first)

    def body(self) -> Sequence[Widget]:
        """Tab bar and the current tab."""
        return [self.tab_bar, self.content]

    @override
    def on_mount(self) -> None:
        super().on_mount()
        self._show(0)
        if self._first_tab:
            self.open_tab(self._first_tab)
            self._expect()

    def on_screen_resume(self) -> None:
        """Read this run often again."""
        super().on_screen_resume()
        self.cockpit.controller.watch_log(self.log_name)
        self.cockpit.controller.watch_run(self.run_id, is_open=True)

    def watch_snapshot(self) -> None:
        """Show another picture of the run."""
        self._show(self.tab_bar.current)
        self.tick()

    def catch_up(self) -> None:
        """Show the newest picture of this run."""
        self.snapshot = self.cockpit.pictures.run(self.run_id) or self.snapshot

    def receive(self, message: CockpitMessage) -> None:
        """Take pictures of this run, and the piece of a log that was asked for."""
        if isinstance(message, messages.RunFetched) and message.run_id == self.run_id:
            self.snapshot = message.snapshot
        elif isinstance(message, messages.LogPartFetched) and message.run_id == self.run_id:
            if message.part.line:
                self._show_part(message.part)
            else:
                self.part(LogKeys).take_piece(message.part)
        elif isinstance(message, messages.LogSearched) and message.run_id == self.run_id:
            self.part(LogKeys).receive(message)
        elif isinstance(message, messages.SamplesArrived | messages.SampleRead) and message.run_id == self.run_id:
            self.part(SampleKeys).receive(message)
        elif isinstance(message, messages.BesideFetched | messages.WandbFound) and message.run_id == self.run_id:
            self.part(MetricKeys).receive(message)
        elif isinstance(message, messages.ConfigRead) and message.run_id == self.run_id and self.config_pane:
            self.config_pane.take(message.config)
        elif isinstance(message, messages.RequestFailed):
            self.in_log(lambda pane: pane.expect_nothing())
            self._failed(message)
        elif isinstance(message, messages.WhyFetched):
            self.part(RunActions).take_why(message.report)
        elif isinstance(message, messages.NodeShellReady):
            self.part(RunActions).take_shell(message)

    @property
    def target(self) -> RunSummary | None:
        """The run that keys act on; None until it was read."""
        return self.snapshot.summary if self.snapshot is not None else None

    def _show(self, index: int) -> None:
        pane, snapshot = self._panes.get(index), self.snapshot
        if pane is None or snapshot is None:
            return
        if isinstance(pane, OverviewPane):
            pane.show(snapshot, stage.title(snapshot.summary, self.cockpit.glyphs))
        else:
            pane.is_awaited = snapshot.is_awaited
            pane.show(snapshot)
        if index == NUMBERS["samples"]:
            self.part(SampleKeys).look(snapshot)
        elif index == NUMBERS["metrics"]:
            self.part(MetricKeys).follow(snapshot)

    def _failed(self, message: messages.RequestFailed) -> None:
        """Say in a tab why it cannot show what was asked for."""
        problem = f"{message.error} {message.hint}".strip()
        if message.asked == messages.SEARCH_SAMPLES and self.samples_pane is not None:
            self.samples_pane.fail(problem)
        elif message.asked == messages.READ_CONFIG and self.config_pane is not None:
            self.config_pane.fail(problem)

    def open_tab(self, index: int) -> None:
        """Show a tab, making its pane the first time."""
        index %= len(self.tabs)
        if not self.content.is_attached:
            return
        if index not in self._panes:
            self._panes[index] = self.tabs[index].pane()
            self.content.mount(self._panes[index])
        for number, pane in self._panes.items():
            pane.display = number == index
        self.tab_bar.show(index)
        self._show(index)
        if index == NUMBERS["config"]:
            self.cockpit.controller.ask_config(self.run_id)
        self.tick()

    @property
    def tab(self) -> str:
        """Id of the current tab."""
        return self.tabs[self.tab_bar.current].id

    @property
    def log_pane(self) -> LogPane | None:
        """The log's pane, once it was opened."""
        pane = self._panes.get(NUMBERS["logs"])
        return pane if isinstance(pane, LogPane) else None

    @property
    def samples_pane(self) -> SamplesPane | None:
        """The samples' pane, where it is in sight."""
        pane = self._panes.get(NUMBERS["samples"])
        return pane if isinstance(pane, SamplesPane) and self.tab == "samples" else None

    @property
    def config_pane(self) -> ConfigPane | None:
        """The settings' pane, where it is in sight."""
        pane = self._panes.get(NUMBERS["config"])
        return pane if isinstance(pane, ConfigPane) and self.tab == "config" else None

    @property
    def filtered_pane(self) -> ConfigPane | GpusPane | ActorsPane | None:
        """The pane in sight that a filter narrows."""
        pane = self._panes.get(self.tab_bar.current)
        return pane if isinstance(pane, ConfigPane | GpusPane | ActorsPane) else None

    @property
    def log_files(self) -> tuple[LogFile, ...]:
        """The logs that the run has; none until it was read."""
        return self.snapshot.logs if self.snapshot is not None else ()

    def key_context(self) -> KeyContext:
        """The run and the tab decide."""
        pane, gpus = self.log_pane, self.mover()
        return KeyContext(
            can_open=not isinstance(gpus, GpusPane) or gpus.shown == "map",
            readonly=self.cockpit.readonly,
            run_state=self.snapshot.summary.state if self.snapshot is not None else "",
            tab=self.tab,
            searching=self.tab == "logs" and pane is not None and bool(pane.sought.pattern),
            num_nodes=len(nodes_of(self.target, self.cockpit)),
            num_clusters=1,
            has_panels=len(self.tabs) > len(TABS),
        )

    @override
    def crumbs(self) -> Sequence[str]:
        return [self.run_id]

    def state_spans(self) -> Sequence[Span]:
        """State and size of the run."""
        if self.snapshot is None:
            return ()
        run, glyphs = self.snapshot.summary, self.cockpit.glyphs
        size = f"  {size_of(run, glyphs.times)} {run.gpu}"
        place = f"{size}  {clip(place_of(run), 20)}  attempt {run.attempt}" if self.app.size.width >= 90 else size
        return (*stage.state_spans(run, glyphs), (place, "dim"))

    @property
    def marked(self) -> tuple[str, ...]:
        """None: this screen is of one run."""
        return ()

    @property
    def node(self) -> str:
        """The first node in sight of the tab of GPUs."""
        pane = self._panes.get(NUMBERS["gpus"])
        return pane.node if isinstance(pane, GpusPane) and self.tab == "gpus" else ""

    def mover(self) -> ListPane | None:
        """The current tab, if it scrolls."""
        pane = self._panes.get(self.tab_bar.current)
        return None if isinstance(pane, OverviewPane) else pane

    @override
    def typed(self, purpose: str, text: str) -> None:
        super().typed(purpose, text)
        if purpose == "search":
            self.part(LogKeys).typed(text)

    def answer(self, purpose: str, text: str) -> str:
        """Search all of the log, or the samples; or name the run that is to be drawn beside."""
        if purpose == "beside":
            return self.part(MetricKeys).choose(text)
        if purpose == "samples":
            return self.part(SampleKeys).search(text)
        return self.part(LogKeys).search(text) if purpose == "search" else ""

    def left(self, purpose: str) -> None:
        """Leaving the search clears it, too."""
        super().left(purpose)
        if purpose == "search":
            self.part(LogKeys).clear()

    def narrow(self, words: str) -> None:
        """Show only settings, GPUs or actors with these words."""
        if self.filtered_pane is not None:
            self.filtered_pane.filter(words)

    def do_search(self) -> None:
        """Search what is in sight: samples, settings, GPUs, else the log."""
        if self.samples_pane is not None:
            self.part(SampleKeys).ask_words()
        elif (pane := self.filtered_pane) is not None:
            self.prompting.ask("filter", "/", pane.filtered, hint=f"words of {pane.FILTERS_BY}")
        else:
            self.part(LogKeys).do_search()

    def moved(self) -> None:
        """The cursor is on another sample."""
        self.part(SampleKeys).moved()

    def do_copy(self) -> None:
        """Copy the run's id, or a line of the log."""
        if self.tab == "logs" and self.log_pane is not None:
            self.cockpit.copy(self.log_pane.line_to_copy, "log line")
        else:
            self.cockpit.copy(self.run_id, "run id")

    def do_escape(self) -> None:
        """Clear the search, then leave what is shown alone, then clear the order or the window, else go back."""
        pane = self.log_pane
        if self.tab == "logs" and pane is not None and pane.sought.pattern:
            self.part(LogKeys).clear()
        elif (shown := self.filtered_pane) is not None and shown.filtered:
            shown.filter("")
        elif not (self.back_to_all() or self.part(SampleKeys).clear() or self.part(MetricKeys).clear()):
            self.leave()

    def open_evidence(self, name: str, line: int) -> None:
        """Open the logs at a line of one; it is shown when it was read."""
        self._open_part(name, line, None, NOTHING)

    def on_log_edge(self, message: messages.LogEdge) -> None:
        """Read on beyond the lines that the log's pane has."""
        self.part(LogKeys).read_on(message.step)

    def open_hit(self, name: str, line: int, offset: int, query: LogQuery) -> None:
        """The same for a hit of a search, of which is known where it begins."""
        self._open_part(name, line, offset, query)

    def _open_part(self, name: str, line: int, offset: int | None, query: LogQuery) -> None:
        self._wanted_part, self._wanted_query = (name, line), query
        self.cockpit.controller.ask_log_part(self.run_id, name, line, offset)
        self._first_tab = NUMBERS["logs"]  # where this screen has only been made, and does not stand yet
        self.open_tab(NUMBERS["logs"])
        self._expect()

    def _expect(self) -> None:
        if self._wanted_part is not None:
            self.in_log(lambda pane: pane.expect(*self._wanted_part or ("", 0)))

    def _show_part(self, part: LogPart) -> None:
        if (part.name, part.line) == self._wanted_part:
            self._wanted_part = None
            self.open_tab(NUMBERS["logs"])
            self.in_log(lambda pane: pane.show_part(part, self._wanted_query))
