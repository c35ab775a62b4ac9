"""What the parts of a screen share that do what its keys stand for, and what such a part sees of its screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from rltui.service.cockpit import Ask
from rltui.tui.host import Host, OnHost
from rltui.tui.keys import KeyContext, KeyTable
from rltui.tui.screens.prompting import Prompting
from rltui.tui.widgets.bars import TabBar
from rltui.tui.widgets.list_pane import ListPane
from rltui.watch.snapshots import LogFile, RunSummary

if TYPE_CHECKING:
    from rltui.tui.screens.run_tabs import Tab
    from rltui.tui.widgets.log_pane import LogPane
    from rltui.tui.widgets.samples_pane import SamplesPane
    from rltui.watch.log_search import LogQuery

Kind = TypeVar("Kind")
ScreenType = TypeVar("ScreenType", bound=OnHost)


class Part(Generic[ScreenType]):
    """Has a method ``do_<id>`` for some of its screen's keys."""

    def __init__(self, screen: ScreenType) -> None:
        self._screen = screen

    @property
    def cockpit(self) -> Host:
        """The application, as screens see it."""
        return self._screen.cockpit


class HasRun(OnHost, Protocol):
    """A screen on which a run is selected or open."""

    @property
    def target(self) -> RunSummary | None:
        """The run that actions are for, as it was last seen."""

    @property
    def bound(self) -> KeyTable:
        """The table with the user's own keys."""

    @property
    def marked(self) -> tuple[str, ...]:
        """Ids of the runs that are marked, for which actions are instead."""

    @property
    def on_top(self) -> bool:
        """Whether this is the screen that takes the keys."""

    @property
    def node(self) -> str:
        """The node that is in sight; empty where none is looked at."""

    def act(self, key_id: str) -> None:
        """Do what a key of the table stands for."""

    def ask_changes(self, ask: Ask) -> None:
        """Ask which keys a resubmission is to change."""

    def key_context(self) -> KeyContext:
        """What decides which keys can act."""


class HasTabs(HasRun, Protocol):
    """The screen of an open run.

    Attributes:
        run_id: Which it is.
        prompting: Where one types.
        log_name: Which log is wanted, as in ``LogSnapshot``.
        tabs: All of them.
        tab_bar: Which one is in sight.
    """

    run_id: str
    prompting: Prompting
    log_name: str
    tabs: Sequence[Tab]
    tab_bar: TabBar

    @property
    def tab(self) -> str:
        """Id of the current tab."""

    @property
    def log_pane(self) -> LogPane | None:
        """The log's pane, once it was opened."""

    @property
    def log_files(self) -> tuple[LogFile, ...]:
        """The logs that the run has, by which ``l`` goes from one to the next."""

    @property
    def samples_pane(self) -> SamplesPane | None:
        """The samples' pane, where it is in sight."""

    def mover(self) -> ListPane | None:
        """The current tab, if it scrolls."""

    def open_tab(self, index: int) -> None:
        """Show the tab of a number."""

    def open_hit(self, name: str, line: int, offset: int, query: LogQuery) -> None:
        """Show a hit of a search, of which is known where it begins."""

    def part(self, kind: type[Kind]) -> Kind:
        """What else knows what keys do."""
