"""From a key to an action: ask what it would do, show that, and do exactly what was shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.tui.messages import Ask

if TYPE_CHECKING:
    from textual.screen import Screen

    from rltui.service.cockpit import ActionPreview
    from rltui.tui.host import Host
    from rltui.tui.messages import PreviewFetched
    from rltui.tui.screens.confirm import Answer


class Questions:
    """The one question that is open: what an action would do.

    Args:
        app: The application.
    """

    def __init__(self, app: Host) -> None:
        self._app = app
        self._open: tuple[Ask, Screen[object]] | None = None

    @property
    def waiting(self) -> bool:
        """Whether an answer is outstanding."""
        return self._open is not None

    def ask(self, ask: Ask) -> None:
        """Ask what an action would do; its confirmation opens when the answer is there."""
        self._open = (ask, self._app.screen)
        self._app.controller.ask_preview(ask)

    def forget(self) -> None:
        """The user turned to something else."""
        self._open = None

    def failed(self, asked: str) -> None:
        """A request came to nothing; only if it was this question's is there no answer to wait for."""
        if self._open is not None and self._open[0].words == asked:
            self._open = None

    def take(self, message: PreviewFetched) -> None:
        """Ask for confirmation, unless the user has turned to something else meanwhile.

        A modal that opens late could take a key that was meant for the screen below it.
        """
        asked, self._open = self._open, None
        if self._app.top is not None and asked == (message.ask, self._app.top):
            self._confirm(message.ask, message.preview)

    def _confirm(self, ask: Ask, preview: ActionPreview) -> None:
        from rltui.tui.screens.confirm import ConfirmScreen

        def answered(answer: Answer | None) -> None:
            if answer == "yes":
                self._app.controller.act(ask, preview)
                self._app.say(f"{ask.words} {self._app.glyphs.ellipsis}")
            elif answer == "edit" and self._app.top is not None:
                self._app.top.ask_changes(Ask("edit", ask.run_id, preview.overrides, preview.exclude))

        self._app.push_screen(ConfirmScreen(ask, preview), answered)
