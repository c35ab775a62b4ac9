"""The confirmation of an action: what it would do, to which run, by which commands. The default is No."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.containers import Container

from rltui.service.cockpit import ActionPreview
from rltui.tui import keys
from rltui.tui.messages import Ask
from rltui.tui.screens.keyed import KeyedScreen
from rltui.tui.spans import Line
from rltui.tui.views import confirm as view
from rltui.tui.widgets.list_pane import ListPane
from rltui.tui.widgets.pane import Pane

MAX_WIDTH = 92

Answer = Literal["yes", "no", "edit"]


class _Text(ListPane):
    """What would happen; scrolls where it is longer than the terminal."""

    has_cursor = False

    def __init__(self, preview: ActionPreview) -> None:
        super().__init__(id="confirm-text")
        self._preview = preview
        self._made: tuple[int, list[Line]] = (-1, [])
        self.scrolled: Callable[[], None] = lambda: None

    def lines(self, width: int) -> list[Line]:
        """All lines for a width."""
        if self._made[0] != width:
            self._made = (width, view.confirm_lines(self._preview, width, self.glyphs))
        return self._made[1]

    def count(self) -> int:
        return len(self.lines(self.size.width))

    def row(self, index: int) -> Line:
        return self.lines(self.size.width)[index]

    def go_to(self, index: int) -> None:
        """Scroll, and tell whoever counts what is left."""
        super().go_to(index)
        self.scrolled()


class _Buttons(Pane):
    """The answers, always in sight."""

    def __init__(self, problem: str, can_edit: bool, text: _Text) -> None:
        super().__init__(id="confirm-buttons")
        self._problem, self._can_edit, self._text = problem, can_edit, text

    def build(self) -> Sequence[Line]:
        return [view.buttons(self._problem, self._can_edit, self._text.below, self.size.width, self.glyphs)]


def _can_confirm(context: keys.KeyContext) -> str:
    return context.problem


def _can_edit(context: keys.KeyContext) -> str:
    return "" if context.can_edit else "there is nothing to edit in it"


KEYS = keys.KeyTable(
    (
        keys.KeyGroup(
            "confirm",
            (
                keys.Key("yes", ("y",), "do it", "Do what is shown.", 1, _can_confirm),
                keys.Key("no", ("n", "escape", "q", "enter"), "no", "Leave everything as it is.", 2),
                keys.Key("edit", ("e",), "edit", "Edit the changes first.", 3, _can_edit, quiet=True),
            ),
        ),
        keys.LIST,
    )
)


class ConfirmScreen(KeyedScreen[Answer], inherit_bindings=False):
    """Asks before an action. Its target is that of the preview, whatever happens to the list behind it."""

    KEYS: ClassVar[keys.KeyTable] = KEYS

    def __init__(self, ask: Ask, preview: ActionPreview) -> None:
        super().__init__()
        self.preview = preview
        self._problem = view.why_not(ask, preview)
        self._can_edit = ask.action not in ("cancel", "auto") and not ask.others
        self._text = _Text(preview)
        self._buttons = _Buttons(self._problem, self._can_edit, self._text)
        self._text.scrolled = self._buttons.repaint
        self._box = Container(self._text, self._buttons, id="confirm")

    def compose(self) -> ComposeResult:
        """The box."""
        yield self._box

    def on_mount(self) -> None:
        """Size the box."""
        self._fit()

    def on_resize(self) -> None:
        """Size the box."""
        self._fit()

    def _fit(self) -> None:
        width = min(MAX_WIDTH, self.app.size.width - 2)
        self._box.styles.width = width
        self._box.styles.height = min(self.app.size.height, len(self._text.lines(width - 4)) + 6)
        self.call_after_refresh(self._buttons.repaint)

    def key_context(self) -> keys.KeyContext:
        """The preview decides."""
        return keys.KeyContext(problem=self._problem, can_edit=self._can_edit)

    def mover(self) -> ListPane:
        """What scrolls."""
        return self._text

    def do_yes(self) -> None:
        """Do it."""
        self.dismiss("yes")

    def do_no(self) -> None:
        """Leave everything as it is."""
        self.dismiss("no")

    def do_edit(self) -> None:
        """Edit the changes first."""
        self.dismiss("edit")
