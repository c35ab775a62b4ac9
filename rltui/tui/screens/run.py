"""One run: an overview, and a tab for each part that needs more room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import override

from rltui.service.run_columns import place_of, size_of
from rltui.tui import messages
from rltui.tui.keys import KeyContext, KeyTable
from rltui.tui.messages import CockpitMessage
from rltui.tui.refresh import Source
from rltui.tui.screens.log_keys import LogKeys
from rltui.tui.screens.metric_keys import MetricKeys
from rltui.tui.screens.run_actions import nodes_of
from rltui.tui.screens.run_keys import KEYS, TabKeys
from rltui.tui.screens.run_tabs import NUMBERS, TABS, TabsScreen
from rltui.tui.screens.sample_keys import SampleKeys
from rltui.tui.spans import Span, clip
from rltui.tui.views import stage
from rltui.tui.widgets.gpus_pane import GpusPane
from rltui.tui.widgets.log_pane import NOTHING
from rltui.tui.widgets.run_panes import OverviewPane
from rltui.watch.log_search import LogQuery
from rltui.watch.snapshots import LogPart, RunSnapshot, RunSummary


class RunScreen(TabsScreen, inherit_bindings=False):
    """One run with its tabs: overview, metrics, GPUs, logs, samples and more."""

    KEYS: ClassVar[KeyTable] = KEYS
    OPENS: ClassVar[str] = "whole"
    SOURCE: ClassVar[Source] = "run"
    PARTS = (LogKeys, SampleKeys, MetricKeys, TabKeys)

    def __init__(self, run_id: str, summary: RunSummary | None, known: RunSnapshot | None, tab: int = 0) -> None:
        super().__init__(run_id)
        self.in_log = self.part(LogKeys).in_log
        self._first_tab = tab
        self._wanted_part: tuple[str, int] | None = None
        self._wanted_query = NOTHING
        first = RunSnapshot(summary=summary, taken_at=summary.stage.updated) if summary is not None else None
        self.set_reactive(RunScreen.snapshot, known or first)

    @override
    def on_mount(self) -> None:
        super().on_mount()
        self.show_tab(0)
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
        self.show_tab(self.tab_bar.current)
        self.tick()

    def catch_up(self) -> None:
        """Show the newest picture of this run."""
        self.snapshot = self.cockpit.pictures.run(self.run_id) or self.snapshot

    def receive(self, message: CockpitMessage) -> None:
        """Take pictures of this run, and what was asked for of it."""
        super().receive(message)
        if isinstance(message, messages.RequestFailed):
            self.in_log(lambda pane: pane.expect_nothing())
            self._failed(message)
        elif getattr(message, "run_id", "") != self.run_id:
            return
        elif isinstance(message, messages.RunFetched):
            self.snapshot = message.snapshot
        elif isinstance(message, messages.LogPartFetched):
            if message.part.line:
                self._show_part(message.part)
            else:
                self.part(LogKeys).take_piece(message.part)
        elif isinstance(message, messages.LogSearched):
            self.part(LogKeys).receive(message)
        elif isinstance(message, messages.SamplesArrived | messages.SampleRead):
            self.part(SampleKeys).receive(message)
        elif isinstance(message, messages.BesideFetched | messages.WandbFound):
            self.part(MetricKeys).receive(message)
        elif isinstance(message, messages.ConfigRead) and self.config_pane is not None:
            self.config_pane.take(message.config)

    def show_tab(self, index: int) -> None:
        """Give the pane of a tab the newest picture; some ask for more."""
        pane, snapshot = self.panes.get(index), self.snapshot
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
