"""The application that shows a recording: the cockpit with one screen."""

from __future__ import annotations

from textual.screen import Screen
from typing_extensions import override

from rltui.service.replay import NOT_HERE, ReplayCockpit
from rltui.tui.app import CockpitApp
from rltui.tui.screens.replay import ReplayScreen

OPENS = ("why", "help")
"""Screens that are of the recording; all others are of what there is now."""


class ReplayApp(CockpitApp):
    """The cockpit on a recording.

    Args:
        recording: What is shown.
        ascii_only: Draw with ASCII characters only.
    """

    CSS_PATH = "app.tcss"

    def __init__(self, recording: ReplayCockpit, *, ascii_only: bool = False) -> None:
        super().__init__(recording, readonly=True, ascii_only=ascii_only, wall_clock=lambda: recording.clock.now)
        self._recording = recording

    @override
    def get_default_screen(self) -> Screen[None]:
        return ReplayScreen(self._recording)

    def open(self, place: str, *args: object) -> None:
        """Open a screen, if it is of the recording."""
        if place in OPENS:
            super().open(place, *args)
        else:
            self.say(NOT_HERE, "warning")

    def go_home(self) -> None:
        """Go back to the run."""
        while self.top is not None and not isinstance(self.top, ReplayScreen):
            self.pop_screen()


def run_replay(recording: ReplayCockpit, *, ascii_only: bool = False) -> int:
    """Show a recording in this terminal until the user leaves it; returns the exit code."""
    app = ReplayApp(recording, ascii_only=ascii_only)
    app.run()
    return app.return_code or 0
