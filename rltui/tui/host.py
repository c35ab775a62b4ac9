"""What screens may ask of the application: the one thing that they know of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from rltui.service.cockpit import Ask
from rltui.tui.commands import Completion
from rltui.tui.controller import Controller
from rltui.tui.glyphs import Glyphs
from rltui.tui.pictures import Pictures
from rltui.tui.refresh import Source
from rltui.tui.views.bars import Health
from rltui.watch.snapshots import RunIdentity

Severity = Literal["information", "warning", "error"]


class Host(Protocol):
    """The application, as screens see it.

    Attributes:
        pictures: What is known.
        controller: Asks the services.
        glyphs: The alphabet of this terminal.
        readonly: Whether nothing may be changed.
        paused: Whether drawing stands still.
        launch_cluster: Where the user launched last.
        wall_clock: Epoch seconds.
        theme: Name of the colours.
    """

    pictures: Pictures
    controller: Controller
    glyphs: Glyphs
    readonly: bool
    paused: bool
    launch_cluster: str
    wall_clock: Callable[[], float]
    theme: str

    @property
    def screen(self) -> Any:
        """The screen that takes the keys."""

    @property
    def top(self) -> Any:
        """The screen on top that is no dialog; None under one, and while the cockpit is being closed."""

    def push_screen(self, screen: Any, callback: Any = None) -> Any:
        """Put a dialog over the screen; its answer goes to ``callback``."""

    def say(self, text: str, severity: Severity = "information") -> None:
        """Show a notification for a few seconds."""

    def hush(self) -> None:
        """Take all notifications away at once."""

    def copy(self, text: str, what: str) -> None:
        """Copy to the terminal's clipboard."""

    def health(self, source: Source, run: RunIdentity | None = None) -> Health:
        """How fresh the data of a source are."""

    def toggle_pause(self) -> None:
        """Stop drawing, or start again."""

    def leave(self) -> None:
        """Quit the cockpit; runs go on."""

    def ask(self, ask: Ask) -> None:
        """Ask what an action would do; its confirmation opens when that is known."""

    def take_back(self) -> None:
        """Forget the fix that was confirmed a moment ago."""

    def set_timer(self, delay: float, callback: Any = None) -> Any:
        """Call ``callback`` once, after ``delay`` seconds."""

    def suspend(self) -> Any:
        """A context in which the terminal is another program's."""

    def forget_question(self) -> None:
        """The user turned to something else than what was asked."""

    def open(self, place: str, *args: object) -> None:
        """Open a screen of the table of places."""

    def go_home(self) -> None:
        """Go back to the list of runs."""

    def open_run(self, run: RunIdentity, tab: int = 0) -> None:
        """Open a run at a tab."""

    def obey(self, text: str) -> None:
        """Do what was typed behind ``:``."""

    def complete(self, text: str) -> Completion:
        """Complete what is typed behind ``:``."""
