"""One run: an overview, and a tab for each part that needs more room."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.containers import Container
from textual.reactive import var

from rltui.tui import formats, keys, messages
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.screens.log_keys import LogKeys
from rltui.tui.screens.run_actions import ACT, RunActions, nodes_of
from rltui.tui.screens.run_tabs import NUMBERS, TABS
from rltui.tui.spans import clip
from rltui.tui.views import stage
from rltui.tui.widgets.bars import TabBar
from rltui.tui.widgets.gpus_pane import GpusPane
from rltui.tui.widgets.log_pane import NOTHING, LogPane
from rltui.tui.widgets.run_panes import OverviewPane
from rltui.watch.snapshots import RunSnapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.widget import Widget

    from rltui.tui.keys import KeyContext
    from rltui.tui.messages import CockpitMessage
    from rltui.tui.refresh import Source
    from rltui.tui.screens.run_tabs import TabPane
    from rltui.tui.spans import Span
    from rltui.tui.widgets.list_pane import ListPane
    from rltui.watch.log_search import LogQuery
    from rltui.watch.snapshots import LogFile, LogPart, RunSummary


def _in_log(context: keys.KeyContext) -> str:
    return "" if context.tab == "logs" else "this key is for the log: 6 opens it"


def _in_gpus(context: keys.KeyContext) -> str:
    return "" if context.tab == "gpus" else "this key is for the GPUs: 2 opens them"


def _needs_search(context: keys.KeyContext) -> str:
    return "" if context.searching else "nothing is searched: / starts a search of the log"


KEYS = keys.KeyTable(
    (
        keys.KeyGroup(
            "one run",
            (
                keys.Key("tab_overview", ("1",), "overview", "Everything at once."),
                keys.Key("tab_gpus", ("2",), "GPUs", "Every node: GPUs with their roles, CPU, memory, processes."),
                keys.Key("tab_actors", ("3",), "actors", "Ray actors: state, node, process, restarts, why they died."),
                keys.Key(
                    "tab_queues", ("4",), "queues", "Queues of the trainer and of the scheduler, weight versions."
                ),
                keys.Key("tab_metrics", ("5",), "metrics", "Where a step goes, and every series as a chart."),
                keys.Key("tab_logs", ("6",), "logs", "The logs of all nodes: scroll, follow, search."),
                keys.Key("tab_events", ("7",), "events", "What happened to the attempt, and when."),
                keys.Key("tab_history", ("8",), "history", "Where the time went: goodput, and what each loss cost."),
                keys.Key("next_tab", ("]", "right", "l", "tab"), "next tab", "Go to the next tab.", 1),
                keys.Key("previous_tab", ("[", "left", "h", "shift+tab"), "tab before", "Go to the tab before."),
                keys.Key(
                    "wall", ("v",), "view", "GPUs: one line a node, or every GPU and process.", 2, _in_gpus, quiet=True
                ),
                keys.Key(
                    "choose_log", ("o",), "which log", "Choose a log, or all of them together.", 2, _in_log, quiet=True
                ),
                keys.Key("follow", ("F",), "follow", "Stay at the end of the log.", 3, _in_log, quiet=True),
                keys.Key("search", ("/",), "search", "Search the log.", 6),
                keys.Key("next_hit", ("n",), "next hit", "Go to the next hit of the search.", 0, _needs_search),
                keys.Key("previous_hit", ("N",), "hit before", "Go to the hit before.", 0, _needs_search),
                keys.Key("pan_left", ("<",), "pan left", "Move long log lines to the left.", 0, _in_log),
                keys.Key("pan_right", (">",), "pan right", "Move long log lines to the right.", 0, _in_log),
                keys.Key(
                    "copy", ("y",), "copy", "Copy the run's id; in the log, the line of the hit or the last one shown."
                ),
            ),
        ),
        ACT,
        keys.LIST,
        keys.EVERYWHERE,
    )
)


class TabKeys:
    """What the digits do: open a tab.

    Args:
        screen: Has the tabs.
    """

    def __init__(self, screen: RunScreen) -> None:
        for tab in TABS:
            setattr(self, f"do_tab_{tab.id}", partial(screen.open_tab, NUMBERS[tab.id]))


class RunScreen(CockpitScreen, inherit_bindings=False):
    """The open run."""

    KEYS: ClassVar[keys.KeyTable] = KEYS
    SOURCE: ClassVar[Source] = "run"
    PARTS = (RunActions, LogKeys, TabKeys)

    snapshot: var[RunSnapshot | None] = var(None, init=False)

    def __init__(self, run_id: str, summary: RunSummary | None, known: RunSnapshot | None, tab: int = 0) -> None:
        super().__init__(run_id)
        self.log_name = ""
        self.in_log = self.part(LogKeys).in_log
        self.tab_bar = TabBar([tab.title for tab in TABS])
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

    def on_mount(self) -> None:
        """Show what is known."""
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
            self._show_part(message.part)
        elif isinstance(message, messages.LogSearched) and message.run_id == self.run_id:
            self.part(LogKeys).receive(message)
        elif isinstance(message, messages.RequestFailed):
            self.in_log(lambda pane: pane.expect_nothing())
        elif isinstance(message, messages.WhyFetched):
            self.part(RunActions).take_why(message.report)

    @property
    def target(self) -> RunSummary | None:
        """This run."""
        return self.snapshot.summary if self.snapshot is not None else None

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
        pane = self._panes.get(NUMBERS["logs"])
        return pane if isinstance(pane, LogPane) else None

    @property
    def log_files(self) -> tuple[LogFile, ...]:
        """The logs there are."""
        return self.snapshot.logs if self.snapshot is not None else ()

    def key_context(self) -> KeyContext:
        """The run and the tab decide."""
        pane = self.log_pane
        return keys.KeyContext(
            readonly=self.cockpit.readonly,
            run_state=self.snapshot.summary.state if self.snapshot is not None else "",
            tab=self.tab,
            searching=self.tab == "logs" and pane is not None and bool(pane.sought.pattern),
            num_nodes=len(nodes_of(self.target, self.cockpit)),
            num_clusters=1,
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

    @property
    def marked(self) -> tuple[str, ...]:
        """None: this screen is of one run."""
        return ()

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

    def typed(self, purpose: str, text: str) -> None:
        """Search while typing."""
        if purpose == "search":
            self.part(LogKeys).typed(text)

    def answer(self, purpose: str, text: str) -> str:
        """Search all of the log."""
        return self.part(LogKeys).search(text) if purpose == "search" else ""

    def left(self, purpose: str) -> None:
        """Leaving the search clears it."""
        if purpose == "search":
            self.part(LogKeys).clear()

    def do_copy(self) -> None:
        """Copy the run's id, or a line of the log."""
        if self.tab == "logs" and self.log_pane is not None:
            self.cockpit.copy(self.log_pane.line_to_copy, "log line")
        else:
            self.cockpit.copy(self.run_id, "run id")

    def do_escape(self) -> None:
        """Clear the search, else go back."""
        pane = self.log_pane
        if self.tab == "logs" and pane is not None and pane.sought.pattern:
            self.part(LogKeys).clear()
        else:
            self.do_back()

    def do_wall(self) -> None:
        """GPUs: one line a node, or every GPU and process."""
        pane = self._panes.get(NUMBERS["gpus"])
        if isinstance(pane, GpusPane):
            pane.toggle()

    def open_evidence(self, name: str, line: int) -> None:
        """Open the logs at a line of one; it is shown when it was read."""
        self._open_part(name, line, None, NOTHING)

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
