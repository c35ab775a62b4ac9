"""The one-line prompt at the foot of a screen: filter, search, override and command are all typed here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.events import Key, Paste
from textual.widgets import Input

from rltui.tui.commands import Completion
from rltui.tui.spans import Line, line
from rltui.tui.views.bars import choice_rows
from rltui.tui.widgets.pane import Pane

Complete = Callable[[str], Completion]
"""What the tab key makes of a text."""


class Owner(Protocol):
    """Who opened the prompt, and hears of what is typed."""

    def typed(self, purpose: str, text: str) -> None:
        """The text has changed, by a key or by completion."""

    def answered(self, purpose: str, text: str) -> None:
        """Enter was pressed on ``text``."""

    def prompt_left(self, purpose: str, text: str) -> None:
        """Escape was pressed, with ``text`` in the prompt."""


class _Label(Pane):
    """What is asked, in front of the input."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.styles.width = len(text) + 2

    def build(self) -> Sequence[Line]:
        return [line((f" {self._text} ", "key"))]


class _Choices(Pane):
    """What the word before the cursor can become, above the input; where nothing is offered it takes no row."""

    def __init__(self) -> None:
        super().__init__()
        self.offered = Completion("", "")
        self.chosen: int | None = None
        self.styles.dock = "top"
        self.display = False

    def offer(self, completion: Completion) -> int:
        """Show other choices, none of them chosen yet, and say in how many rows."""
        self.offered, self.chosen = completion, None
        self.display = len(completion.choices) > 1
        rows = len(self.build()) if self.display else 0
        self.styles.height = rows
        self.repaint()
        return rows

    def turn(self, step: int) -> str:
        """Choose the next one, the first after the last; the text with it."""
        choices = self.offered.choices
        self.chosen = (step > 0) - 1 if self.chosen is None else self.chosen + step
        self.chosen %= len(choices)
        self.repaint()
        return self.offered.before + choices[self.chosen]

    def build(self) -> Sequence[Line]:
        size = self.screen.size
        return choice_rows(self.offered.choices, self.chosen, size.width, max(1, size.height // 3), self.glyphs)


class _Input(Input):
    """An input that takes enter, escape and tab at once.

    As bindings they would be done after the letters typed behind them: fast typing would be torn.
    """

    def __init__(self, prompt: Prompt, text: str, hint: str) -> None:
        super().__init__(text, placeholder=hint, select_on_focus=False, compact=True)
        self._prompt = prompt

    def _on_paste(self, event: Paste) -> None:
        """A pasted command of several lines is one line here; an input of its own would drop all but the first."""
        event.prevent_default()
        event.stop()
        lines = event.text.splitlines()
        if len(lines) > 1:  # each but the last of a shell's may end in a backslash
            lines = [one.strip().removesuffix("\\").rstrip() for one in lines]
        super()._on_paste(Paste(" ".join(filter(None, lines))))

    async def _on_key(self, event: Key) -> None:
        special: dict[str, Callable[[], None]] = {
            "enter": self._prompt.answer,
            "escape": self._prompt.leave,
            "tab": self._prompt.complete,
            "shift+tab": partial(self._prompt.complete, -1),
        }
        if self._prompt.closed:
            event.stop()
            event.prevent_default()
            self.screen.post_message(Key(event.key, event.character))
        elif not self._prompt.is_next(event):
            event.stop()
            event.prevent_default()
        elif event.key in special:
            event.stop()
            event.prevent_default()
            special[event.key]()
        else:
            self._prompt.passes(event)
            await super()._on_key(event)


class Prompt(Horizontal):
    """Asks for a line of text.

    Args:
        owner: Is told what is typed and answered; directly, because keys behind the answer are already meant for it.
        purpose: Tells the owner which question it is.
        label: What stands in front of the input.
        text: What stands in the input at first.
        hint: What an empty input shows.
        complete: Says what the tab key makes of a text. Where several words fit they are shown, and tab goes through
            them.
    """

    def __init__(
        self,
        owner: Owner,
        purpose: str,
        label: str,
        text: str = "",
        hint: str = "",
        complete: Complete | None = None,
    ) -> None:
        super().__init__()
        self.closed = False
        self._ready = False
        self._owner = owner
        self._purpose = purpose
        self._label = label
        self._complete = complete
        self._input = _Input(self, text, hint)
        self._choices = _Choices()
        self._completed: str | None = None
        self._early: list[Key] = []
        self._passed: Key | None = None
        self._ordered = False
        self._handed_on: dict[int, tuple[Key, bool]] = {}
        """Keys that the screen handed on, by identity, and whether they had been sent back to it."""
        self._sent_back = 0

    def compose(self) -> ComposeResult:
        """Choices, label and input."""
        yield self._choices
        yield _Label(self._label)
        yield self._input

    def on_mount(self) -> None:
        """Take the keys, first those that were typed before the prompt stood; one that was left already takes none."""
        if self.closed:
            return
        self.screen.set_focus(self._input)
        self._ready = True
        for event in self._early:
            self._input.post_message(event)
        self.screen.call_later(self._put_in_order)

    def _put_in_order(self) -> None:
        """All keys that the screen had before the input got the focus are with the input now."""
        self._ordered = True

    def is_next(self, event: Key) -> bool:
        """Whether a key that came to the input is the next one typed; else it goes back, behind those of the screen.

        From the focus on keys come straight to the input, and may overtake those that the screen has not handed on.
        """
        if id(event) in self._handed_on:
            self._sent_back = max(0, self._sent_back - self._handed_on.pop(id(event))[1])
            return True
        if self._ordered and not self._sent_back:
            return True
        self._sent_back += 1
        self.screen.post_message(Key(event.key, event.character))
        return False

    def passes(self, event: Key) -> None:
        """The input has seen a key and has no use for it."""
        self._passed = event

    def takes(self, event: Key) -> bool:
        """Take a key that was typed before the prompt stood; one that the input has passed on is not taken again."""
        if event is self._passed:
            return False
        late = Key(event.key, event.character)
        self._handed_on[id(late)] = (late, self._ordered)
        if self._ready:
            self._input.post_message(late)
        else:
            self._early.append(late)
        return True

    @property
    def text(self) -> str:
        """What stands in the input."""
        return self._input.value

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tell the owner what is typed."""
        event.stop()
        if self.text != self._completed:
            self._offer(Completion("", ""))
        if not self.closed:
            self._owner.typed(self._purpose, event.value)

    def answer(self) -> None:
        """Tell the owner the answer."""
        self._owner.answered(self._purpose, self.text)

    def leave(self) -> None:
        """Tell the owner that there is no answer."""
        self._owner.prompt_left(self._purpose, self.text)

    def complete(self, step: int = 1) -> None:
        """Complete what is typed; where several words fit show them, and then put in one after the other."""
        if self._complete is None:
            return
        if self.text == self._completed and self._choices.display:
            self._completed = self._choices.turn(step)
        else:
            completion = self._complete(self.text)
            self._completed = completion.text
            self._offer(completion)
        self._input.value = self._completed
        self._input.cursor_position = len(self.text)

    def _offer(self, completion: Completion) -> None:
        """Make room for what fits, and show it."""
        self.styles.height = 1 + self._choices.offer(completion)
