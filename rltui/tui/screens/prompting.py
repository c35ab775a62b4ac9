"""The prompt of a screen: opened by a key, answered, left, and what is asked in it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Protocol

from rltui.tui.commands import complete_override, override_problem

if TYPE_CHECKING:
    from textual.events import Key
    from textual.widget import Widget

    from rltui.service.cockpit import Ask
    from rltui.tui.host import Host
    from rltui.tui.widgets.bars import FooterBar
    from rltui.tui.widgets.prompt import Complete, Prompt


class Prompted(Protocol):
    """A screen with a prompt at its foot."""

    footer: FooterBar

    @property
    def cockpit(self) -> Host:
        """The application as screens know it."""

    def mount(self, widget: Widget) -> object:
        """Put the prompt onto the screen."""

    def set_focus(self, widget: Widget | None) -> None:
        """Give the keys to a widget."""

    def tick(self) -> None:
        """Bring the footer up to date."""

    def typed(self, purpose: str, text: str) -> None:
        """The text of the prompt has changed."""

    def answer(self, purpose: str, text: str) -> str:
        """Take an answer; a problem keeps the prompt open."""

    def left(self, purpose: str) -> None:
        """The prompt was left without an answer."""


class Prompting:
    """Opens and closes the prompt.

    Args:
        screen: Whose prompt it is.

    Attributes:
        prompt: What is open.
        draft: What stood in an override's prompt that was left.
    """

    def __init__(self, screen: Prompted) -> None:
        self._screen = screen
        self.prompt: Prompt | None = None
        self.draft = ""
        self._changing: Ask | None = None

    def ask(self, purpose: str, label: str, text: str = "", hint: str = "", complete: Complete | None = None) -> None:
        """Ask for a line of text."""
        from rltui.tui.widgets.prompt import Prompt

        if self.prompt is None:
            self.prompt = Prompt(self, purpose, label, text, hint, complete)
            self._screen.mount(self.prompt)
            self._screen.footer.display = False

    def takes(self, event: Key) -> bool | None:
        """Whether the open prompt takes a key, even before it stands; None: it is not the prompt's at all."""
        if self.prompt is None:
            return None
        if self.prompt.takes(event):
            return True
        return None if event.key in ("up", "down") else False

    def close(self) -> None:
        """Take the prompt away, and give the keys back to the screen."""
        if self.prompt is not None:
            self.prompt.closed = True
            self._screen.set_focus(None)
            self.prompt.remove()
            self.prompt = None
            self._screen.footer.display = True
            self._screen.tick()

    def ask_command(self) -> None:
        """Open the prompt for a command of the shell, with completion."""
        self.ask("command", ":", hint="any verb of the shell; tab completes", complete=self._screen.cockpit.complete)

    def ask_changes(self, ask: Ask) -> None:
        """Ask which keys a resubmission is to change; its preview follows."""
        self._changing = ask
        self.ask(
            "changes", "resubmit with", shlex.join(ask.overrides), "key.path=value …  enter previews", complete_override
        )

    def _changes(self, text: str) -> None:
        ask = self._changing
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            self._screen.cockpit.say(f"the changes cannot be read: {error}", "warning")
            return
        problem = next(filter(None, map(override_problem, words)), "")
        if problem:
            self._screen.cockpit.say(problem, "warning")
        elif ask is not None:
            self.close()
            self._screen.cockpit.ask(ask._replace(overrides=words))

    # --- what the prompt tells

    def typed(self, purpose: str, text: str) -> None:
        """Hand the text on as it changes: filters and searches follow it."""
        self._screen.typed(purpose, text)

    def answered(self, purpose: str, text: str) -> None:
        """Enter was pressed; that the last letters were typed may not have been told yet."""
        if purpose == "changes":
            self._changes(text)
            return
        problem = self._screen.answer(purpose, text)
        if problem:
            self._screen.cockpit.say(problem, "warning")
            return
        self.close()
        self._screen.typed(purpose, text)
        if purpose == "command":
            self._screen.cockpit.obey(text)

    def prompt_left(self, purpose: str, text: str) -> None:
        """Close the prompt after escape; an override that was begun is kept as a draft."""
        self.close()
        self.draft = text if purpose == "override" else self.draft
        self._screen.left(purpose)
