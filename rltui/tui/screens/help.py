"""The help: all keys of the screen it was opened from, made from the key table, and the signs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partialmethod
from typing import ClassVar

from textual.app import ComposeResult
from typing_extensions import override

from rltui.tui.glyphs import Glyphs
from rltui.tui.keys import EVERYWHERE, QUIT_HELP, Key, KeyTable, dialog_keys, shown
from rltui.tui.screens.keyed import KeyedScreen
from rltui.tui.spans import BLANK, Line, Span, line, pad, rule, wrapped
from rltui.tui.states import RUN_STATES
from rltui.tui.widgets.list_pane import TextPane
from rltui.watch.owners import ROLE_NAMES

KEYS_WIDTH = 22


def help_lines(table: KeyTable, width: int, glyphs: Glyphs) -> list[Line]:
    """Keys by scope, the screen's own first, then the signs."""
    lines: list[Line] = []
    for group in table.groups:
        lines.append(rule([(group.title, "title")], [], width, glyphs))
        for key in group.keys:
            lines += _entry("  ".join(shown(name, glyphs) for name in key.keys), key.help, width)
        if group.title == EVERYWHERE.title:
            lines += _entry("ctrl+c ctrl+c", QUIT_HELP, width)
        lines.append(BLANK)
    lines.append(rule([("signs", "title")], [], width, glyphs))
    signs: list[Span] = [(f" {look.sign(glyphs)} {pad(look.word, 11)}", look.role) for look in RUN_STATES.values()]
    per_line = max(1, width // 15)
    lines += [Line(tuple(signs[first : first + per_line])) for first in range(0, len(signs), per_line)]
    roles: list[Span] = [(f" {letter} {pad(name, 12)}", "dim") for letter, name in ROLE_NAMES.items()]
    roles.append((f" {glyphs.free} free", "dim"))
    return [*lines, *(Line(tuple(roles[first : first + per_line])) for first in range(0, len(roles), per_line))]


def _entry(names: str, sentence: str, width: int) -> list[Line]:
    size = KEYS_WIDTH if width >= 60 else 12
    return wrapped(sentence, width, "", "text", mark=(f" {pad(names, size)} ", "key"))


class _HelpPane(TextPane):
    """The lines of the help."""

    def __init__(self, table: KeyTable) -> None:
        super().__init__(id="help")
        self._table = table

    def head(self) -> Sequence[Line]:
        return [line((" rltui", "title"), (f" {self.glyphs.crumb} help", "text"), ("   esc closes", "dim")), BLANK]

    def build(self) -> Sequence[Line]:
        first, *others = super().build()
        more: Span = (f"   {self.glyphs.down} {self.below} more", "attention")
        return [Line((*first.spans, more)) if self.below else first, *others]

    def make(self, width: int) -> Sequence[Line]:
        return help_lines(self._table, width, self.glyphs)


KEYS = dialog_keys("help", Key("close", ("escape", "q", "?", "enter"), "close", "Close the help.", 1))


class HelpScreen(KeyedScreen[None], inherit_bindings=False):
    """All keys of a screen."""

    KEYS: ClassVar[KeyTable] = KEYS

    pane: _HelpPane

    def __init__(self, table: KeyTable) -> None:
        super().__init__()
        self.pane = _HelpPane(table)

    @override
    def compose(self) -> ComposeResult:
        yield self.pane

    do_close = partialmethod(KeyedScreen.dismiss, None)
