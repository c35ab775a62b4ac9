"""Choosing the columns of the list of runs: which, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partialmethod
from typing import ClassVar

from rltui.service.run_columns import COLUMNS, DEFAULTS
from rltui.tui.keys import Key, KeyTable, dialog_keys
from rltui.tui.picking import PickItem
from rltui.tui.screens.pick import PickScreen

KEYS = dialog_keys(
    "choosing columns",
    Key("choose", ("enter",), "keep", "Show what is marked, in this order, and keep it.", 1),
    Key("mark", ("space",), "show", "Show the column, or leave it out.", 2),
    Key("lower", ("J", "shift+down"), "later", "Move the column down: later in the line.", 3),
    Key("higher", ("K", "shift+up"), "earlier", "Move the column up: earlier in the line.", 4),
    Key("usual", ("d",), "usual", "Mark the columns that are shown where nobody chose.", 5),
    Key("close", ("escape", "q"), "close", "Change nothing.", 6),
)


def column_items(first: Sequence[str]) -> list[PickItem]:
    """All columns, those in ``first`` first."""
    words = [*first, *(word for word in COLUMNS if word not in first)]
    return [PickItem(word, word, COLUMNS[word].about) for word in words]


class ColumnsScreen(PickScreen, inherit_bindings=False):
    """The columns over the list; what is chosen comes back as their words, none where it was closed."""

    KEYS: ClassVar[KeyTable] = KEYS

    def __init__(self, shown: Sequence[str]) -> None:
        hint = "space shows, J K move, d usual, enter keeps"
        super().__init__("columns", column_items(shown), marking=True, hint=hint)
        self.pane.marked = set(shown)

    def do_choose(self) -> None:
        """Show what is marked, in this order."""
        words = tuple(item.id for item in self.pane.items if item.id in self.pane.marked)
        if words:
            self.dismiss(words)
        else:
            self.cockpit.say("no column is left: space shows the one under the cursor", "warning")

    def do_mark(self) -> None:
        """Show the column or leave it out; the cursor stays, so that the next key can move it."""
        self.pane.toggle()

    def do_usual(self) -> None:
        """Mark what is shown where nobody chose."""
        self.pane.marked = set(DEFAULTS)
        self._show(column_items(DEFAULTS), 0)

    def _move(self, step: int) -> None:
        items, at = list(self.pane.items), self.pane.cursor
        if 0 <= at + step < len(items):
            items.insert(at + step, items.pop(at))
            self._show(items, at + step)

    do_lower = partialmethod(_move, 1)
    do_higher = partialmethod(_move, -1)

    def _show(self, items: list[PickItem], cursor: int) -> None:
        self.pane.all_items = self.pane.items = tuple(items)
        self.pane.go_to(cursor)
