"""From a key to an action: ask what it would do, show that, and do exactly what was shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.service.cockpit import Ask

if TYPE_CHECKING:
    from textual.screen import Screen
    from textual.timer import Timer

    from rltui.service.cockpit import ActionPreview
    from rltui.tui.host import Host
    from rltui.tui.messages import PreviewFetched
    from rltui.tui.screens.confirm import Answer


GRACE_S = 5.0
"""How long a fix waits after its yes: it ends a run and changes it, and was composed by rltui, not by the user."""


class Questions:
    """The one question that is open: what an action would do; and the fix that waits, to be taken back or done.

    Args:
        app: The application.
    """

    def __init__(self, app: Host) -> None:
        self._app = app
        self._open: tuple[Ask, Screen[object]] | None = None
        self._held: tuple[Ask, ActionPreview, Timer] | None = None

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
            if answer == "yes" and ask.action == "fix":
                self._wait(ask, preview)
            elif answer == "yes":
                self._act(ask, preview)
            elif answer == "edit" and self._app.top is not None:
                changes = Ask("edit", ask.run, preview.overrides, preview.exclude, set_aside=preview.set_aside)
                self._app.top.ask_changes(changes._replace(script=preview.script))

        self._app.push_screen(ConfirmScreen(ask, preview), answered)

    def _act(self, ask: Ask, preview: ActionPreview) -> None:
        self._app.controller.act(ask, preview)
        self._app.say(f"{ask.words} {self._app.glyphs.ellipsis}")

    def _wait(self, ask: Ask, preview: ActionPreview) -> None:
        self.settle()
        self._held = (ask, preview, self._app.set_timer(GRACE_S, self.settle))
        self._app.say(f"{ask.words} in {GRACE_S:.0f} s: z takes it back")

    def settle(self) -> None:
        """Do the fix that waits; the cockpit is left with nothing undone that was confirmed."""
        if self._held is not None:
            (ask, preview, timer), self._held = self._held, None
            timer.stop()
            self._act(ask, preview)

    def take_back(self) -> str:
        """Forget the fix that waits; returns what is to be said."""
        if self._held is None:
            return "there is nothing to take back: only a fix waits, for 5 s"
        (ask, _, timer), self._held = self._held, None
        timer.stop()
        return f"{ask.words}: taken back, nothing was done"
