"""One run: an overview, and a tab for each part that needs more room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

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
from rltui.tui.screens.run_actions import RunActions, Target, nodes_of
from rltui.tui.screens.run_keys import KEYS
from rltui.tui.screens.run_tabs import TABS, Tabs
from rltui.tui.screens.sample_keys import SampleKeys
from rltui.tui.spans import Span, clip
from rltui.tui.views import stage
from rltui.tui.widgets.gpus_pane import GpusPane
from rltui.tui.widgets.list_pane import ListPane
from rltui.tui.widgets.run_panes import OverviewPane
from rltui.tui.widgets.samples_pane import SamplesPane
from rltui.watch.snapshots import RunIdentity, RunSnapshot, RunSummary


class RunScreen(CockpitScreen, inherit_bindings=False):
    """One run with its tabs: overview, metrics, GPUs, logs, samples and more."""

    KEYS: ClassVar[KeyTable] = KEYS
    OPENS: ClassVar[str] = "whole"
    SOURCE: ClassVar[Source] = "run"

    snapshot: var[RunSnapshot | None] = var(None, init=False)

    def __init__(self, run: RunIdentity, summary: RunSummary | None, known: RunSnapshot | None, tab: int = 0) -> None:
        super().__init__(run)
        self.identity: RunIdentity = run
        self.tabs = Tabs(self, self._opened)
        self.tabs.first = tab
        self.logs = LogKeys(self, self.tabs, lambda: self.snapshot.logs if self.snapshot is not None else ())
        self.samples = SampleKeys(self, self.tabs)
        self.metrics = MetricKeys(self, self.tabs)
        self.actions = RunActions(self, lambda: Target(self.target, node=self.tabs.node))
        self.parts = (self.tabs, self.logs, self.samples, self.metrics, self.actions)
        first = RunSnapshot(summary=summary, taken_at=summary.stage.updated) if summary is not None else None
        self.set_reactive(RunScreen.snapshot, known or first)

    @property
    def target(self) -> RunSummary | None:
        """The run, once it was read."""
        return self.snapshot.summary if self.snapshot is not None else None

    def body(self) -> Sequence[Widget]:
        """Tab bar and the current tab."""
        return [self.tabs.bar, self.tabs.content]

    @override
    def on_mount(self) -> None:
        super().on_mount()
        self._show_tab()
        if self.tabs.first:
            self.tabs.open(self.tabs.first)
            self.logs.expect()

    def on_screen_resume(self) -> None:
        """Read this run often again."""
        super().on_screen_resume()
        self.cockpit.controller.watch_log(self.logs.log_name)
        self.cockpit.controller.watch_run(self.identity, is_open=True)

    def on_unmount(self) -> None:
        """Search no more in what nobody looks at."""
        self.cockpit.controller.searches.end()

    def watch_snapshot(self) -> None:
        """Show another picture of the run."""
        self._show_tab()
        self.tick()

    def catch_up(self) -> None:
        """Show the newest picture of this run."""
        self.snapshot = self.cockpit.pictures.run(self.identity) or self.snapshot

    def receive(self, message: CockpitMessage) -> None:
        """Take pictures of this run, and what was asked for of it."""
        self.actions.receive(message)
        if isinstance(message, messages.RequestFailed):
            self.logs.in_log(lambda pane: pane.expect_nothing())
            self._failed(message)
        elif getattr(message, "run", None) != self.identity:
            return
        elif isinstance(message, messages.RunFetched):
            self.snapshot = message.snapshot
        elif isinstance(message, messages.LogPartFetched | messages.LogSearched):
            self.logs.receive(message)
        elif isinstance(message, messages.SamplesArrived | messages.SampleRead):
            self.samples.receive(message)
        elif isinstance(message, messages.BesideFetched | messages.WandbFound):
            self.metrics.receive(message)
        elif isinstance(message, messages.ConfigRead) and self.tabs.config_pane is not None:
            self.tabs.config_pane.take(message.config)

    def _opened(self) -> None:
        """Another tab is in sight."""
        self.samples.opened()
        self._show_tab()
        if self.tabs.config_pane is not None:
            self.cockpit.controller.ask_config(self.identity)
        self.tick()

    def _show_tab(self) -> None:
        """Give the pane in sight the newest picture; some ask for more."""
        pane, snapshot = self.tabs.pane, self.snapshot
        if pane is None or snapshot is None:
            return
        if isinstance(pane, OverviewPane):
            pane.show(snapshot, stage.title(snapshot.summary, self.cockpit.glyphs))
        else:
            pane.is_awaited = snapshot.is_awaited
            pane.show(snapshot)
        self.samples.look(snapshot)
        self.metrics.follow(snapshot)

    def _failed(self, message: messages.RequestFailed) -> None:
        """Say in a tab why it cannot show what was asked for."""
        problem = f"{message.error} {message.hint}".strip()
        samples = self.tabs.opened(SamplesPane)
        if message.asked == messages.SEARCH_SAMPLES and samples is not None:
            samples.fail(problem)
        elif message.asked == messages.READ_CONFIG and self.tabs.config_pane is not None:
            self.tabs.config_pane.fail(problem)

    def key_context(self) -> KeyContext:
        """The run and the tab decide."""
        pane, gpus, tab, run = self.tabs.log_pane, self.tabs.pane, self.tabs.current, self.target
        return KeyContext(
            can_open=not isinstance(gpus, GpusPane) or gpus.shown == "map",
            readonly=self.cockpit.readonly,
            run_state=run.state if run is not None else "",
            owner=run.owner if run is not None else "",
            tab=tab,
            searching=tab == "logs" and pane is not None and bool(pane.sought.pattern),
            num_nodes=len(nodes_of(run, self.cockpit)),
            num_clusters=1,
            has_panels=len(self.tabs.all) > len(TABS),
        )

    def mover(self) -> ListPane | None:
        """The current tab, if it scrolls."""
        return self.tabs.list_pane

    @override
    def crumbs(self) -> Sequence[str]:
        return [self.identity.run_id]

    def state_spans(self) -> Sequence[Span]:
        """State and size of the run."""
        run, glyphs = self.target, self.cockpit.glyphs
        if run is None:
            return ()
        size = f"  {size_of(run, glyphs.times)} {run.gpu}"
        place = f"{size}  {clip(place_of(run), 20)}  attempt {run.attempt}" if self.app.size.width >= 90 else size
        return (*stage.state_spans(run, glyphs), (place, "dim"))

    @override
    def typed(self, purpose: str, text: str) -> None:
        super().typed(purpose, text)
        if purpose == "search":
            self.logs.typed(text)

    def answer(self, purpose: str, text: str) -> str:
        """Search all of the log, or the samples; or name the run that is to be drawn beside."""
        if purpose == "beside":
            return self.metrics.choose(text)
        if purpose == "samples":
            return self.samples.search(text)
        return self.logs.search(text) if purpose == "search" else ""

    def left(self, purpose: str) -> None:
        """Leaving the search clears it, too."""
        super().left(purpose)
        if purpose == "search":
            self.logs.clear()

    def narrow(self, words: str) -> None:
        """Show only settings, GPUs or actors with these words."""
        if self.tabs.filtered_pane is not None:
            self.tabs.filtered_pane.filter(words)

    def do_search(self) -> None:
        """Search what is in sight: samples, settings, GPUs, else the log."""
        if self.tabs.samples_pane is not None:
            self.samples.ask_words()
        elif (pane := self.tabs.filtered_pane) is not None:
            self.prompting.ask("filter", "/", pane.filtered, hint=f"words of {pane.FILTERS_BY}")
        else:
            self.logs.do_search()

    def moved(self) -> None:
        """The cursor is on another sample."""
        self.samples.moved()

    def do_stack(self) -> None:
        """Show what the process of the actor under the cursor is doing."""
        if self.tabs.actor is not None:
            name = self.cockpit.pictures.name(self.identity)
            self.cockpit.open("output", ("actors", name, "--stack", self.tabs.actor.actor_id), False)

    def do_queue(self) -> None:
        """Open the queue of the run's cluster."""
        if self.target is not None:
            self.cockpit.open("queue", self.target.cluster)

    def do_copy(self) -> None:
        """Copy the run's id, or a line of the log."""
        if self.tabs.current == "logs" and self.tabs.log_pane is not None:
            self.cockpit.copy(self.tabs.log_pane.line_to_copy, "log line")
        else:
            self.cockpit.copy(self.identity.run_id, "run id")

    def do_escape(self) -> None:
        """Clear the search, then leave what is shown alone, then clear the order or the window, else go back."""
        pane = self.tabs.log_pane
        if self.tabs.current == "logs" and pane is not None and pane.sought.pattern:
            self.logs.clear()
        elif (shown := self.tabs.filtered_pane) is not None and shown.filtered:
            shown.filter("")
        elif not (self.back_to_all() or self.samples.clear() or self.metrics.clear()):
            self.leave()

    def on_log_edge(self, message: messages.LogEdge) -> None:
        """Read on beyond the lines that the log's pane has."""
        self.logs.read_on(message.step)
