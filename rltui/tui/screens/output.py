"""What a verb of the shell prints, as a text to scroll in; one that changes something waits for ``y`` first."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import override

from rltui.errors import UNCONFIRMED, UsageError
from rltui.service.shell import ShellCommand
from rltui.tui import messages
from rltui.tui.keys import Key, KeyContext, KeyTable, first_of, key_table, may_change, what_is_wrong
from rltui.tui.messages import CockpitMessage
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.spans import Line, Span, clean, clip, line, wrapped
from rltui.tui.widgets.list_pane import ListPane

YES = "--yes"
USAGE = UsageError.exit_code


class _Text(ListPane):
    """The lines that were printed."""

    has_cursor = False

    def __init__(self) -> None:
        super().__init__(id="output")
        self.lines: tuple[str, ...] = ()
        self.note = ""

    def count(self) -> int:
        return len(self.lines)

    def row(self, index: int) -> Line:
        text = clean(self.lines[index])[self.panned :]
        return line(f" {clip(text, self.size.width - 1, self.glyphs.ellipsis)}")

    def empty(self) -> Sequence[Line]:
        return wrapped(self.note, self.size.width, " ", "dim")


_waits = first_of(may_change, what_is_wrong)

KEYS = key_table(
    "output",
    Key("yes", ("y",), "do it", "Run a command that changes something.", 1, _waits, quiet=True),
    Key("copy", ("Y",), "copy", "Copy the text.", 2),
    Key("pan_right", (">", "right"), "long lines", "Move long lines sideways.", 3),
    Key("pan_left", ("<", "left"), "left", "Move them back."),
    back="close",
)


class OutputScreen(CockpitScreen, inherit_bindings=False):
    """Runs a verb and shows what it prints; leaving the screen ends one that only reads.

    Args:
        words: The verb and its words.
        changes: Whether it changes something, and so waits for ``y`` and goes on when the screen is left.
    """

    KEYS: ClassVar[KeyTable] = KEYS

    pane: _Text

    def __init__(self, words: tuple[str, ...], changes: bool = False) -> None:
        super().__init__()
        self._words = words
        self._changes = self._waits = changes
        self.pane = _Text()
        self.command: ShellCommand | None = None

    def on_mount(self) -> None:
        """Begin, or say what would be done."""
        super().on_mount()
        if self._waits:
            self.pane.note = f"`{self._said}` changes something: y does it, esc does not"
        else:
            self._start()

    def on_unmount(self) -> None:
        """Nobody reads it any more."""
        if self.command is not None and not self._changes:
            self.command.stop()

    def _start(self) -> None:
        self._waits = False
        self.pane.note = ""
        self.command = self.cockpit.controller.shell(self._words, max(40, self.app.size.width - 1), self._changes)
        self.pane.repaint()

    @property
    def _said(self) -> str:
        return f"rltui {shlex.join(self._words)}"

    @override
    def receive(self, message: CockpitMessage) -> None:
        if isinstance(message, messages.ShellHeard) and message.command is self.command:
            self.catch_up()
            self.tick()

    def catch_up(self) -> None:
        """Show all that was printed; at the end of the text the end stays in sight."""
        if self.command is not None:
            follows = 0 < len(self.pane.lines) <= self.pane.top + self.pane.room < len(self.command.lines)
            self.pane.lines = self.command.lines
            self.pane.note = "nothing was printed" if self.command.exit_code is not None else ""
            if follows:
                self.pane.go_to_end()
            if self._asks():
                self._waits = True
            self.pane.repaint()

    def _asks(self) -> bool:
        """Whether the verb has shown what it would do, and nobody was there to confirm it."""
        assert self.command is not None
        is_left = self._changes and self.command.exit_code == USAGE and YES not in self._words
        return is_left and any(UNCONFIRMED in text for text in self.command.lines[-3:])

    @override
    def crumbs(self) -> Sequence[str]:
        return [self._said]

    @override
    def state_spans(self) -> Sequence[Span]:
        if self._waits or self.command is None:
            return [("waits for y", "attention")]
        if self.command.exit_code is None:
            return [("runs", "dim")]
        said = f"exit code {self.command.exit_code} after {self.command.took_s:.1f} s"
        return [(said, "attention" if self.command.exit_code else "dim")]

    def key_context(self) -> KeyContext:
        """Whether it waits for a yes."""
        problem = "" if self._waits else "it waits for no answer"
        return KeyContext(readonly=self.cockpit.readonly, problem=problem)

    def do_yes(self) -> None:
        """Run it; one that has asked is told yes."""
        if self.command is not None:
            self._words = (self._words[0], YES, *self._words[1:])
        self._start()

    def do_copy(self) -> None:
        """Copy all that the command printed."""
        self.cockpit.copy("\n".join(self.pane.lines), "text")
