"""What the keys of an open run do with its logs: choose one, follow it, search it, move it sideways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rltui.tui.screens.run_tabs import NUMBERS
from rltui.tui.views.log_choice import log_items

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App

    from rltui.tui.host import Host
    from rltui.tui.screens.prompting import Prompting
    from rltui.tui.widgets.log_pane import LogPane
    from rltui.watch.snapshots import LogFile


class HasLog(Protocol):
    """A screen with a log.

    Attributes:
        log_name: Which log is wanted, as in ``LogSnapshot``.
        prompting: Where one types what is searched.
    """

    log_name: str
    prompting: Prompting

    @property
    def app(self) -> App[object]:
        """The application, for dialogs."""

    @property
    def cockpit(self) -> Host:
        """The application, as screens see it."""

    @property
    def log_pane(self) -> LogPane | None:
        """The log's pane, once it was opened."""

    @property
    def log_files(self) -> tuple[LogFile, ...]:
        """The logs there are."""

    def open_tab(self, index: int) -> None:
        """Show a tab."""


class LogKeys:
    """What the keys of the log do.

    Args:
        screen: Has the log.
    """

    def __init__(self, screen: HasLog) -> None:
        self._screen = screen

    def in_log(self, act: Callable[[LogPane], object]) -> None:
        """Do something with the log's pane, if it was opened."""
        if self._screen.log_pane is not None:
            act(self._screen.log_pane)

    def do_choose_log(self) -> None:
        """Choose which log is shown."""
        from rltui.tui.screens.pick import PickScreen

        def chosen(ids: tuple[str, ...] | None) -> None:
            if ids:
                self.in_log(lambda pane: pane.leave_part())
                self._screen.log_name = ids[0]
                self._screen.cockpit.controller.watch_log(self._screen.log_name)

        self._screen.app.push_screen(
            PickScreen("which log", log_items(self._screen.log_files, self._screen.log_name)), chosen
        )

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
        self._screen.open_tab(NUMBERS["logs"])
        words = self._screen.log_pane.words if self._screen.log_pane is not None else ""
        self._screen.prompting.ask("search", "/", words, hint="words in the log")
