"""What all screens share: header, footer, prompt, and the one way a key becomes an action."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, ClassVar, cast

from rltui.tui import keys
from rltui.tui.overrides import override_problem
from rltui.tui.palette import key_items
from rltui.tui.screens.keyed import KeyedScreen
from rltui.tui.widgets.bars import FooterBar, HeaderBar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult
    from textual.events import Key
    from textual.widget import Widget

    from rltui.tui.app import CockpitApp
    from rltui.tui.keys import KeyContext
    from rltui.tui.messages import Ask, CockpitMessage
    from rltui.tui.refresh import Source
    from rltui.tui.spans import Span
    from rltui.tui.widgets.list_pane import ListPane
    from rltui.tui.widgets.prompt import Prompt


class CockpitScreen(KeyedScreen[None], inherit_bindings=False):
    """A screen between a header and a footer. A key of the table calls the method ``do_<id>``."""

    SOURCE: ClassVar[Source] = "runs"
    """The source whose age the header shows."""

    def __init__(self, run_id: str = "") -> None:
        super().__init__()
        self.run_id = run_id
        self.header = HeaderBar()
        self.footer = FooterBar()
        self.prompt: Prompt | None = None
        self.draft = ""
        self._changing: Ask | None = None

    @property
    def cockpit(self) -> CockpitApp:
        """The application."""
        return cast("CockpitApp", self.app)

    def body(self) -> Sequence[Widget]:
        """What stands between header and footer."""
        return ()

    def compose(self) -> ComposeResult:
        """Header, body, footer."""
        yield self.header
        yield from self.body()
        yield self.footer

    def on_mount(self) -> None:
        """Show the bars."""
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

    def key_context(self) -> KeyContext:
        """What decides which keys can act."""
        return keys.KeyContext(readonly=self.cockpit.readonly)

    def crumbs(self) -> Sequence[str]:
        """Where you are."""
        return ()

    def state_spans(self) -> Sequence[Span]:
        """What the header says on its right."""
        return ()

    def tick(self) -> None:
        """Bring header and footer up to date."""
        self.header.show(self.crumbs(), self.state_spans(), self.cockpit.health(self.SOURCE, self.run_id))
        self.footer.show(keys.hints(self.SCOPE, self.key_context(), self.cockpit.glyphs))

    # --- keys

    def act(self, key_id: str) -> None:
        """Do what a key of the table stands for, or say why it cannot be done."""
        self.cockpit.questions.forget()
        reason = keys.find(self.SCOPE, key_id).off(self.key_context())
        if reason:
            self.cockpit.say(reason, "warning")
            return
        do: Callable[[], None] = getattr(self, f"do_{key_id}")
        do()
        self.tick()

    def mover(self) -> ListPane | None:
        """The list that the moving keys move."""
        return None

    def pager(self) -> ListPane | None:
        """The list that the page keys move."""
        return self.mover()

    def do_down(self) -> None:
        """One row down."""
        self._move(lambda pane: pane.move(1), self.mover())

    def do_up(self) -> None:
        """One row up."""
        self._move(lambda pane: pane.move(-1), self.mover())

    def do_first(self) -> None:
        """To the first row."""
        self._move(lambda pane: pane.go_to(0), self.mover())

    def do_last(self) -> None:
        """To the last row."""
        self._move(lambda pane: pane.go_to_end(), self.mover())

    def do_page_down(self) -> None:
        """A page down."""
        self._move(lambda pane: pane.page(1), self.pager())

    def do_page_up(self) -> None:
        """A page up."""
        self._move(lambda pane: pane.page(-1), self.pager())

    def _move(self, step: Callable[[ListPane], None], pane: ListPane | None) -> None:
        if pane is None:
            return
        before = pane.cursor
        step(pane)
        if pane.cursor != before:
            self.moved()

    def on_cursor_moved(self) -> None:
        """The mouse has moved a cursor."""
        self.moved()

    def moved(self) -> None:
        """The cursor is on another row; what depends on it is painted in the same frame."""

    def do_pause(self) -> None:
        """Stop or start drawing."""
        self.cockpit.toggle_pause()

    def do_help(self) -> None:
        """Show the help."""
        from rltui.tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.SCOPE))

    def do_back(self) -> None:
        """Go back."""
        self.app.pop_screen()

    def do_escape(self) -> None:
        """Clear what can be cleared, else go back."""
        self.do_back()

    def do_command(self) -> None:
        """Type a command."""
        from rltui.tui.verbs import complete

        self.ask(
            "command", ":", hint="launch open why cancel resubmit …", complete=lambda text: complete(self.cockpit, text)
        )

    def do_palette(self) -> None:
        """Find by name what can be done here."""
        from rltui.tui.screens.pick import PaletteScreen

        def chosen(ids: tuple[str, ...] | None) -> None:
            if ids and self.on_top:
                self.act(ids[0])

        self.app.push_screen(
            PaletteScreen("do", key_items(self.SCOPE, self.key_context(), self.cockpit.glyphs)), chosen
        )

    # --- the prompt

    def ask(
        self, purpose: str, label: str, text: str = "", hint: str = "", complete: Callable[[str], str] | None = None
    ) -> None:
        """Ask for a line of text; the answer comes to :meth:`answered`."""
        from rltui.tui.widgets.prompt import Prompt

        if self.prompt is None:
            self.prompt = Prompt(self, purpose, label, text, hint, complete)
            self.mount(self.prompt)
            self.footer.display = False

    def takes(self, event: Key) -> bool:
        """While a prompt is open the keys are its own, even before it stands; up and down still move."""
        if self.prompt is None:
            return super().takes(event)
        if self.prompt.takes(event):
            return True
        return event.key in ("up", "down") and super().takes(event)

    def close_prompt(self) -> None:
        """Take the prompt away."""
        if self.prompt is not None:
            self.prompt.closed = True
            self.set_focus(None)
            self.prompt.remove()
            self.prompt = None
            self.footer.display = True
            self.tick()

    def ask_changes(self, ask: Ask) -> None:
        """Ask which keys a resubmission is to change; its preview follows."""
        self._changing = ask
        self.ask("changes", "resubmit with", shlex.join(ask.overrides), hint="key.path=value …  enter previews")

    def _changes(self, text: str) -> None:
        ask = self._changing
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            self.cockpit.say(f"the changes cannot be read: {error}", "warning")
            return
        problem = next(filter(None, map(override_problem, words)), "")
        if problem:
            self.cockpit.say(problem, "warning")
        elif ask is not None:
            self.close_prompt()
            self.cockpit.questions.ask(ask._replace(overrides=words))

    def answered(self, purpose: str, text: str) -> None:
        """The prompt was answered; that its last letters were typed may not have been told yet."""
        if purpose == "changes":
            self._changes(text)
            return
        self.close_prompt()
        self.typed(purpose, text)
        if purpose == "command":
            from rltui.tui.verbs import obey

            obey(self.cockpit, text)

    def typed(self, purpose: str, text: str) -> None:
        """The text of the prompt has changed."""

    def prompt_left(self, purpose: str, text: str) -> None:
        """The prompt was left without an answer."""
        self.close_prompt()
        self.draft = text if purpose == "override" else self.draft
        self.left(purpose)

    def left(self, purpose: str) -> None:
        """The prompt was left without an answer; ``draft`` is what stood in it."""
