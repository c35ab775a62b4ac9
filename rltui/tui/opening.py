"""Which screen opens for what, and over which other: the part of the application that goes from place to place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from textual.app import App

from rltui.tui import commands
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.screens.runs import RunsScreen

if TYPE_CHECKING:
    from rltui.tui.pictures import Pictures

Severity = Literal["information", "warning", "error"]


class OpeningApp(App[int], inherit_bindings=False):
    """Opens the screens of the cockpit.

    Attributes:
        pictures: What is known.
    """

    pictures: Pictures

    def say(self, text: str, severity: Severity = "information") -> None:
        """Show a notification."""
        raise NotImplementedError

    @property
    def top(self) -> CockpitScreen | None:
        """The screen on top; None under a modal, and when an answer comes while the cockpit is being closed."""
        screen = self.screen_stack[-1] if self.screen_stack else None
        return screen if isinstance(screen, CockpitScreen) else None

    def open_run(self, name: str, tab: int = 0) -> None:
        """Open a run by id or the beginning of one, at a tab."""
        run_id = commands.resolve(name, self.pictures.ids)
        if run_id:
            self._open(run_id, tab)
        else:
            from rltui.tui.verbs import no_run

            self.say(no_run(name), "warning")

    def _open(self, run_id: str, tab: int = 0) -> None:
        from rltui.tui.screens.run import RunScreen

        while self.top is not None and not isinstance(self.top, RunsScreen):
            self.pop_screen()
        self.push_screen(RunScreen(run_id, self.pictures.summary(run_id), self.pictures.run(run_id), tab))

    def open_launch(self, preset: str = "") -> None:
        """Open the launch screen."""
        from rltui.tui.screens.launch import LaunchScreen

        if isinstance(self.top, LaunchScreen):
            self.pop_screen()
        self.push_screen(LaunchScreen(preset))

    def open_why(self, run_id: str) -> None:
        """Open the screen that says why a run died or stands still."""
        from rltui.tui.screens.why import WhyScreen

        self.push_screen(WhyScreen(run_id))

    def open_clusters(self) -> None:
        """Open the list of clusters."""
        from rltui.tui.screens.clusters import ClustersScreen

        if not isinstance(self.top, ClustersScreen):
            self.push_screen(ClustersScreen())

    def open_evidence(self, run_id: str, name: str, line: int) -> None:
        """Open the log of a run at a line, in the run's own screen if that is below."""
        from rltui.tui.screens.run import RunScreen

        below = self.screen_stack[-2] if len(self.screen_stack) > 1 else None
        if isinstance(below, RunScreen) and below.run_id == run_id:
            self.pop_screen()
            screen = below
        else:
            screen = RunScreen(run_id, self.pictures.summary(run_id), self.pictures.run(run_id))
            self.push_screen(screen)
        screen.open_evidence(name, line)
