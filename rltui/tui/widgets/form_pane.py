"""The keys of a layout, to scroll over, filter and edit; below them what the one under the cursor means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rltui.layout.diff import setting_text
from rltui.tui.picking import fits
from rltui.tui.spans import clip_start, line, pad, rule, wrapped
from rltui.tui.widgets.list_pane import ListPane

if TYPE_CHECKING:
    from rltui.layout.fields import Field
    from rltui.tui.spans import Line, Role

ABOUT_ROWS = 4
WIDEST_VALUE = 400


class FormPane(ListPane):
    """One row a key."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.all_fields: tuple[Field, ...] = ()
        self.fields: tuple[Field, ...] = ()
        self.words = ""
        self.problem = ""
        """What is wrong with what is being typed."""

    def show(self, fields: Sequence[Field]) -> None:
        """Show these; the cursor stays on its key."""
        self.all_fields = tuple(fields)
        self.narrow(self.words)

    def narrow(self, words: str) -> None:
        """Show only keys with these words in name, value or meaning; ``set`` alone: those that are set."""
        at = self.selected.key if self.selected is not None else ""
        self.words, is_set = words, words.lower().split() == ["set"]
        self.fields = tuple(one for one in self.all_fields if (one.is_set if is_set else fits(_text_of(one), words)))
        self.cursor = next((index for index, one in enumerate(self.fields) if one.key == at), 0)
        self.repaint()

    def complain(self, problem: str) -> None:
        """Say what is wrong with what is being typed; empty: nothing."""
        self.problem = problem
        self.repaint()

    @property
    def selected(self) -> Field | None:
        """The key under the cursor."""
        return self.fields[self.cursor] if self.cursor < len(self.fields) else None

    def head(self) -> Sequence[Line]:
        """How many keys there are, and what the one under the cursor means."""
        width = self.size.width
        changes = sum(one.is_set for one in self.all_fields)
        right = f"{len(self.fields)} of {len(self.all_fields)}  {changes} set"
        lines = [rule([("keys", "title"), (f" {self.words}", "match")], [(right, "dim")], width, self.glyphs)]
        about = self._about(width)[:ABOUT_ROWS]
        return [*lines, *about, *[line(("", "dim"))] * (ABOUT_ROWS - len(about)), rule([], [], width, self.glyphs)]

    def _about(self, width: int) -> list[Line]:
        one = self.selected
        if one is None:
            return []
        if self.problem:
            return [line((f" {one.key}", "title")), *wrapped(self.problem, width, " ", "bad")]
        rows = [line((f" {one.key}", "title"), (f"  {one.takes}", "accent"))]
        rows += wrapped(one.about, width, " ", "text") if one.about else []
        was = f"  was {setting_text(one.before, 60)}" if one.is_set else ""
        return [*rows, line((f" {one.origin.rpartition('/')[2]}{was}", "dim"))]

    def count(self) -> int:
        """Number of keys."""
        return len(self.fields)

    def row(self, index: int) -> Line:
        """One key with its value and where that comes from."""
        one, width = self.fields[index], self.size.width
        key_width = min(max(len(each.key) for each in self.fields), max(12, width * 2 // 5))
        origin_width = min(30, width // 3) if width >= 60 else 0
        room = max(4, width - key_width - origin_width - 8)
        mark = self.glyphs.attention if one.is_set else " "
        return line(
            (self.glyphs.cursor if self.is_selected(index) else " ", "accent"),
            (f"{mark} ", "attention"),
            (pad(clip_start(one.key, key_width, self.glyphs.ellipsis), key_width), "text" if one.is_set else "accent"),
            ("  ", "dim"),
            (pad(setting_text(one.value, WIDEST_VALUE), room, ellipsis=self.glyphs.ellipsis), _role(one)),
            ("  " if origin_width else "", "dim"),
            (clip_start(one.origin.rpartition("/")[2], origin_width, self.glyphs.ellipsis), "dim"),
            selected=self.is_selected(index),
        )

    def empty(self) -> Sequence[Line]:
        """What stands there until the keys were read, or where none fits."""
        return [line((" no key is like that" if self.all_fields else f" reading {self.glyphs.ellipsis}", "dim"))]


def _role(one: Field) -> Role:
    return "attention" if one.is_set else "dim" if one.origin == "default" else "title"


def _text_of(one: Field) -> str:
    return f"{one.key} {one.value} {one.about}".lower()
