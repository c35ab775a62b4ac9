"""What all screens share that are no dialogs: header, footer, the keys of everywhere, and the prompt at their foot."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from rltui.tui.commands import complete_override, override_problem, without_script
from rltui.tui.keys import key_items
from rltui.tui.refresh import TICK_S
from rltui.tui.screens.keyed import KeyedScreen
from rltui.tui.widgets.bars import FooterBar, HeaderBar

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Key
    from textual.widget import Widget

    from rltui.service.cockpit import Ask
    from rltui.tui.host import Host
    from rltui.tui.messages import CockpitMessage
    from rltui.tui.refresh import Source
    from rltui.tui.spans import Span
    from rltui.tui.widgets.prompt import Complete, Prompt
    from rltui.watch.snapshots import RunIdentity, RunSummary


class CockpitScreen(KeyedScreen[None], inherit_bindings=False):
    """A screen between a header and a footer."""

    SOURCE: ClassVar[Source] = "runs"
    """The source whose age the header shows."""

    def __init__(self, run: RunIdentity | None = None) -> None:
        super().__init__()
        self.identity = run
        self.header = HeaderBar()
        self.footer = FooterBar()
        self.prompting = Prompting(self)
        self.launching = ""
        """The verb phrase of the launch that it waits for; empty: none."""

    @property
    def prompt(self) -> Prompt | None:
        """The prompt that is open."""
        return self.prompting.prompt

    @property
    def target(self) -> RunSummary | None:
        """The run that this is about, as it was last seen; None where it is about none."""
        return self.cockpit.pictures.summary(self.identity)

    def body(self) -> Sequence[Widget]:
        """What stands between header and footer."""
        return [self.pane] if self.pane is not None else ()

    @override
    def compose(self) -> ComposeResult:
        yield self.header
        yield from self.body()
        yield self.footer

    def on_mount(self) -> None:
        """Fill header and footer before the first frame."""
        self.tick()

    def moved(self) -> None:
        """The cursor is on another row, by which keys of the footer may act."""
        self.tick()

    def on_resize(self) -> None:
        """Say in the bars what the new width has room for."""
        self.tick()

    def on_screen_resume(self) -> None:
        """Show what has changed meanwhile."""
        if not self.cockpit.paused:
            self.catch_up()
        self.tick()

    def catch_up(self) -> None:
        """Show the newest pictures there are."""

    def receive(self, message: CockpitMessage) -> None:
        """Take what the controller has to say, if it concerns this screen."""

    def crumbs(self) -> Sequence[str]:
        """Where the user is, as words of the header from the left."""
        return ()

    def state_spans(self) -> Sequence[Span]:
        """What the header says on its right."""
        return ()

    def tick(self) -> None:
        """Bring header and footer up to date."""
        self.header.show(self.crumbs(), self.state_spans(), self.cockpit.health(self.SOURCE, self.identity))
        self.footer.show(self.bound.hints(self.key_context(), self.cockpit.glyphs))

    def tick_s(self) -> float:
        """Seconds until the next tick; more than a second where no age is shown."""
        return TICK_S

    def takes(self, event: Key) -> bool:
        """While a prompt is open the keys are its own; up and down still move."""
        taken = self.prompting.takes(event)
        return super().takes(event) if taken is None else taken

    def ask_changes(self, ask: Ask) -> None:
        """Ask which keys a resubmission is to change."""
        self.prompting.ask_changes(ask)

    def typed(self, purpose: str, text: str) -> None:
        """The text of the prompt has changed; a filter is followed while it is typed."""
        if purpose == "filter":
            self.narrow(text)

    def answer(self, purpose: str, text: str) -> str:  # noqa: ARG002 a hook
        """Take an answer of the prompt; what comes back is why it cannot be taken, which keeps the prompt open."""
        return ""

    def left(self, purpose: str) -> None:
        """The prompt was left without an answer, which clears a filter."""
        if purpose == "filter":
            self.narrow("")

    def narrow(self, words: str) -> None:
        """Show only what has these words."""

    def do_pause(self) -> None:
        """Stop drawing new pictures, or go on: what is on the screen can be read and copied."""
        self.cockpit.toggle_pause()

    def do_take_back(self) -> None:
        """Take back a fix that was confirmed a moment ago."""
        self.cockpit.take_back()

    def do_journal(self) -> None:
        """Show what was done with runs from here."""
        self.cockpit.open("output", ("journal",), False)

    def do_help(self) -> None:
        """Show all keys of this screen."""
        self.cockpit.open("help", self.bound)

    def back_to_all(self) -> bool:
        """Leave what is shown alone, in the place of all; whether anything was."""
        pane = self.mover()
        return pane is not None and pane.back_to_all()

    def leave(self) -> None:
        """Go back to the screen before."""
        self.app.pop_screen()

    def do_back(self) -> None:
        """Leave what is shown alone, else the screen."""
        if not self.back_to_all():
            self.leave()

    def do_escape(self) -> None:
        """Clear what can be cleared, else go back."""
        self.do_back()

    def do_command(self) -> None:
        """Open the prompt for a command of the shell."""
        self.prompting.ask_command()

    def do_palette(self) -> None:
        """Find by name what can be done here."""
        from rltui.tui.screens.pick import PaletteScreen

        def chosen(ids: tuple[str, ...] | None) -> None:
            if ids and self.on_top:
                self.act(ids[0])

        self.app.push_screen(
            PaletteScreen("do", key_items(self.bound, self.key_context(), self.cockpit.glyphs)), chosen
        )


class Part:
    """Has a method ``do_<id>`` for some keys of a screen, and is told by its constructor what else these need.

    Args:
        screen: Whose keys they are.
    """

    def __init__(self, screen: CockpitScreen) -> None:
        self._screen = screen

    @property
    def cockpit(self) -> Host:
        """The application, as screens see it."""
        return self._screen.cockpit

    @property
    def _identity(self) -> RunIdentity:
        """The run that its screen is about; only of parts of a run's own screen."""
        assert self._screen.identity is not None
        return self._screen.identity


class Prompting:
    """The prompt of a screen: opened by a key, answered, left, and what is asked in it.

    Args:
        screen: Whose prompt it is.

    Attributes:
        prompt: What is open.
        draft: What stood in an override's prompt that was left.
    """

    def __init__(self, screen: CockpitScreen) -> None:
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
        text = shlex.join([*ask.overrides, *(["--script", ask.script] if ask.script else [])])
        self.ask("changes", "resubmit with", text, "key.path=value …  enter previews", complete_override)

    def _changes(self, text: str) -> None:
        ask = self._changing
        try:
            words, script = without_script(shlex.split(text))
        except ValueError as error:
            self._screen.cockpit.say(f"the changes cannot be read: {error}", "warning")
            return
        problem = next(filter(None, map(override_problem, words)), "")
        if problem:
            self._screen.cockpit.say(problem, "warning")
        elif ask is not None:
            self.close()
            self._screen.cockpit.ask(ask._replace(overrides=words, script=script))

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
