"""The confirmation of an action: what it would do, to which run, by which commands. The default is No."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rltui.tui.screens.keyed import KeyedScreen
from rltui.tui.spans import BLANK, Line, line, rule, wrapped
from rltui.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult

    from rltui.service.cockpit import ActionPreview
    from rltui.tui.glyphs import Glyphs
    from rltui.tui.keys import Scope

MAX_WIDTH = 92


def confirm_lines(preview: ActionPreview, width: int, glyphs: Glyphs) -> list[Line]:
    """The text of the confirmation."""
    lines = [*wrapped(preview.title, width, " ", "title"), BLANK]
    for sentence in preview.consequences:
        lines += wrapped(sentence, width, f" {glyphs.dot} ", "text")
    if preview.commands:
        lines += [BLANK, rule([("what will run", "dim")], [], width, glyphs)]
        for command in preview.commands:
            lines += wrapped(command, width, "   ", "accent")
    return lines


BUTTONS = line((" y ", "key"), ("do it", "text"), ("      n ", "key"), ("no", "text"), ("  (default)", "dim"))


class _Box(Pane):
    """The text, with the answers always in its last line."""

    def __init__(self, preview: ActionPreview) -> None:
        super().__init__(id="confirm")
        self._preview = preview

    def lines(self, width: int) -> list[Line]:
        return confirm_lines(self._preview, width, self.glyphs)

    def build(self) -> Sequence[Line]:
        width, height = self.size
        lines = self.lines(width)
        if len(lines) > height - 2:
            lines = [*lines[: max(0, height - 2)]]
        return [*lines, *[BLANK] * (height - 1 - len(lines)), BUTTONS]


class ConfirmScreen(KeyedScreen[bool], inherit_bindings=False):
    """Asks before an action. Its target is that of the preview, whatever happens to the list behind it."""

    SCOPE: ClassVar[Scope] = "confirm"

    def __init__(self, preview: ActionPreview) -> None:
        super().__init__()
        self.preview = preview
        self._box = _Box(preview)

    def compose(self) -> ComposeResult:
        """The box."""
        yield self._box

    def on_mount(self) -> None:
        """Size the box."""
        self.set_class(self._box.glyphs.ascii_only, "-ascii")
        self._fit()

    def on_resize(self) -> None:
        """Size the box."""
        self._fit()

    def _fit(self) -> None:
        width = min(MAX_WIDTH, self.app.size.width - 2)
        self._box.styles.width = width
        self._box.styles.height = min(self.app.size.height, len(self._box.lines(width - 4)) + 6)

    def act(self, key_id: str) -> None:
        """Yes or no."""
        do: Callable[[], None] = getattr(self, f"do_{key_id}")
        do()

    def do_yes(self) -> None:
        """Do it."""
        self.dismiss(True)

    def do_no(self) -> None:
        """Leave everything as it is."""
        self.dismiss(False)
