"""The one-line prompt at the foot of a screen: filter, search, override and command are all typed here."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.containers import Horizontal
from textual.widgets import Input

from rltui.tui.messages import PromptChanged, PromptDone, PromptLeft
from rltui.tui.spans import line
from rltui.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult

    from rltui.tui.spans import Line


class _Label(Pane):
    """What is asked, in front of the input."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.styles.width = len(text) + 2

    def build(self) -> Sequence[Line]:
        return [line((f" {self._text} ", "key"))]


class Prompt(Horizontal):
    """Asks for a line of text.

    Args:
        purpose: Comes back in the messages, so that a screen knows which question was answered.
        label: What stands in front of the input.
        text: What stands in the input at first.
        hint: What an empty input shows.
        complete: Gives the completion of a text for the tab key.
    """

    BINDINGS: ClassVar[list[Binding | tuple[str, str] | tuple[str, str, str]]] = [
        Binding("escape", "leave", show=False),
        Binding("tab", "complete", show=False),
    ]

    def __init__(
        self, purpose: str, label: str, text: str = "", hint: str = "", complete: Callable[[str], str] | None = None
    ) -> None:
        super().__init__(id="prompt")
        self.purpose = purpose
        self._label = label
        self._complete = complete
        self._input = Input(text, placeholder=hint, select_on_focus=False, compact=True)

    def compose(self) -> ComposeResult:
        """Label and input."""
        yield _Label(self._label)
        yield self._input

    def on_mount(self) -> None:
        """Take the keys."""
        self._input.focus()

    @property
    def text(self) -> str:
        """What stands in the input."""
        return self._input.value

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tell the screen what is typed."""
        event.stop()
        self.post_message(PromptChanged(self.purpose, event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Tell the screen the answer."""
        event.stop()
        self.post_message(PromptDone(self.purpose, event.value))

    def action_leave(self) -> None:
        """Leave without an answer."""
        self.post_message(PromptLeft(self.purpose, self.text))

    def action_complete(self) -> None:
        """Complete what is typed."""
        if self._complete is not None:
            self._input.value = self._complete(self.text)
            self._input.cursor_position = len(self.text)
