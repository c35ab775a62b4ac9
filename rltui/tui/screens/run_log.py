"""What the keys of an open run do with its logs: choose one, follow it, search it, move it sideways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.tui.screens.acting import ActingScreen
from rltui.tui.screens.run_tabs import NUMBERS
from rltui.tui.views.log_choice import log_items

if TYPE_CHECKING:
    from collections.abc import Callable

    from rltui.tui.widgets.log_pane import LogPane
    from rltui.watch.snapshots import LogFile


class LogKeysScreen(ActingScreen, inherit_bindings=False):
    """A screen with a log.

    Attributes:
        log_name: Which log is wanted, as in ``LogSnapshot``.
    """

    log_name = ""

    @property
    def log_pane(self) -> LogPane | None:
        """The log's pane, once it was opened."""
        raise NotImplementedError

    @property
    def log_files(self) -> tuple[LogFile, ...]:
        """The logs there are."""
        raise NotImplementedError

    def open_tab(self, index: int) -> None:
        """Show a tab."""
        raise NotImplementedError

    def in_log(self, act: Callable[[LogPane], object]) -> None:
        """Do something with the log's pane, if it was opened."""
        if self.log_pane is not None:
            act(self.log_pane)

    def do_choose_log(self) -> None:
        """Choose which log is shown."""
        from rltui.tui.screens.pick import PickScreen

        def chosen(ids: tuple[str, ...] | None) -> None:
            if ids:
                self.in_log(lambda pane: pane.leave_part())
                self.log_name = ids[0]
                self.cockpit.controller.watch_log(self.log_name)

        self.app.push_screen(PickScreen("which log", log_items(self.log_files, self.log_name)), chosen)

    def do_follow(self) -> None:
        """Stay at the end of the log, or stop doing so."""
        self.in_log(lambda pane: pane.follow())

    def do_next_hit(self) -> None:
        """The next hit."""
        self.in_log(lambda pane: pane.step(1))

    def do_previous_hit(self) -> None:
        """The hit before."""
        self.in_log(lambda pane: pane.step(-1))

    def do_pan_left(self) -> None:
        """Long lines to the left."""
        self.in_log(lambda pane: pane.pan(-1))

    def do_pan_right(self) -> None:
        """Long lines to the right."""
        self.in_log(lambda pane: pane.pan(1))

    def do_search(self) -> None:
        """Search the log."""
        self.open_tab(NUMBERS["logs"])
        self.ask("search", "/", self.log_pane.words if self.log_pane is not None else "", hint="words in the log")

    def typed(self, purpose: str, text: str) -> None:
        """Search while typing."""
        if purpose == "search":
            self.in_log(lambda pane: pane.search(text))

    def left(self, purpose: str) -> None:
        """Leaving the search clears it."""
        if purpose == "search":
            self.in_log(lambda pane: pane.search(""))
