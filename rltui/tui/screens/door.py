"""A cluster's question on the way in: password, one-time code, unknown host key. Only ever opened by a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.containers import Container
from textual.screen import Screen
from textual.widgets import Input
from typing_extensions import override

from rltui.tui.spans import BLANK, Line, line, rule, wrapped
from rltui.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Key

    from rltui.cluster.prompts import Question
    from rltui.tui.glyphs import Glyphs

MAX_WIDTH = 84
HOST_KEY = "host-key"


def door_lines(cluster: str, question: Question, at: int, width: int, glyphs: Glyphs) -> list[Line]:
    """What is asked, in the server's own words, and the field that is being answered."""
    number = f"{at + 1} of {len(question.fields)}" if len(question.fields) > 1 else ""
    lines = [rule([(f"{cluster} asks", "title")], [(number, "dim")] if number else [], width, glyphs)]
    lines += [*wrapped(question.title, width, " ", "text"), BLANK]
    for words in question.instructions:
        lines += wrapped(words, width, " ", "text")
    if question.kind == HOST_KEY:
        warning = "compare the fingerprint with the one that the site publishes before you type yes"
        lines += wrapped(warning, width, "", "attention", mark=(f" {glyphs.attention} ", "attention"))
    lines += [BLANK, line((f" {question.fields[at].text}", "key"))]
    return lines


class _Words(Pane):
    """What the cluster's SSH asks, in its own words and ours."""

    def __init__(self, cluster: str, question: Question) -> None:
        super().__init__(id="door-words")
        self._cluster, self._question = cluster, question
        self.at = 0

    def lines(self, width: int) -> list[Line]:
        """All lines for a width."""
        return door_lines(self._cluster, self._question, self.at, width, self.glyphs)

    def build(self) -> Sequence[Line]:
        """The lines; the last ones where there is not room for all."""
        lines = self.lines(self.size.width)
        return lines[-self.size.height :] if self.size.height else lines


class _Hint(Pane):
    """The line of keys below the fields."""

    def build(self) -> Sequence[Line]:
        return [line((" enter", "key"), (" answers", "dim"), ("   esc", "key"), (" leaves it", "dim"))]


class _Answer(Input):
    """The field; enter and escape are taken at once, as keys typed behind them are meant for what comes then."""

    def __init__(self, door: DoorScreen) -> None:
        super().__init__("", password=True, select_on_focus=False, compact=True, id="door-answer")
        self._door = door

    async def _on_key(self, event: Key) -> None:
        special = {"enter": self._door.take, "escape": self._door.leave}
        if event.key in special:
            event.stop()
            event.prevent_default()
            special[event.key]()
        else:
            await super()._on_key(event)


class DoorScreen(Screen[tuple[str, ...]], inherit_bindings=False):
    """Asks for each field in turn. Nothing that is typed here is kept, logged or copied."""

    AUTO_FOCUS: ClassVar[str | None] = ""

    def __init__(self, cluster: str, question: Question) -> None:
        super().__init__()
        self.question = question
        self._answers: list[str] = []
        self._words = _Words(cluster, question)
        self._input = _Answer(self)
        self._box = Container(self._words, self._input, _Hint(id="door-hint"), id="door")

    @override
    def compose(self) -> ComposeResult:
        yield self._box

    def on_mount(self) -> None:
        """Size the box and take the keys."""
        self._next()
        self.set_focus(self._input)

    def on_resize(self) -> None:
        """Give the box the size that its text takes in the new terminal."""
        self._fit()

    def _fit(self) -> None:
        width = min(MAX_WIDTH, self.app.size.width - 2)
        self._box.styles.width = width
        lines = len(self._words.lines(width - 4))
        self._box.styles.height = min(self.app.size.height, lines + 6)
        self._words.styles.height = max(1, min(lines, self.app.size.height - 6))

    def _next(self) -> None:
        self._words.at = len(self._answers)
        self._input.value = ""
        self._input.password = not self.question.fields[self._words.at].echo
        self._fit()
        self._words.repaint()

    def take(self) -> None:
        """Take the answer; after the last one, go back."""
        self._answers.append(self._input.value)
        if len(self._answers) < len(self.question.fields):
            self._next()
        else:
            self.dismiss(tuple(self._answers))

    def leave(self) -> None:
        """Close without an answer: the cluster stays locked."""
        self.dismiss(None)
