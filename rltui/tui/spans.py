"""Text as data: a line is a row of (text, role) pairs, so nothing a log or a name contains can act or be markup.

Views make lines, the panes paint them. Widths are terminal cells, not characters.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Literal, NamedTuple, get_args

from rich.cells import cell_len

from rltui.tui.glyphs import Glyphs

Role = Literal[
    "text", "dim", "rule", "title", "accent", "ok", "attention", "bad", "waiting", "bar", "key", "off", "match"
]
"""What a piece of text is for; the style sheet gives each role its colour."""

ROLES: tuple[Role, ...] = get_args(Role)

Span = tuple[str, Role]

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?")
# Control characters, zero-width and bidirectional marks, variation selectors, lone surrogates: all could move
# the cursor, reorder a line or make its width differ from what is counted here.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ud800-\udfff]"
)
_SELECTORS = re.compile("[\ufe00-\ufe0f]")
"""All of these that Python calls printable."""

LEAST_TITLE = 8
"""Cells that a pane's title keeps beside how things stand."""


class Line(NamedTuple):
    """One line of a pane."""

    spans: tuple[Span, ...] = ()
    selected: bool = False

    @property
    def plain(self) -> str:
        """The line's text without the roles of its parts."""
        return "".join(text for text, _ in self.spans)


BLANK = Line()


def clean(text: str) -> str:
    """``text`` as it may be painted: without escape sequences and invisible characters, on one line."""
    if text.isprintable() and (text.isascii() or not _SELECTORS.search(text)):
        return text
    text = _ESCAPES.sub("", text.replace("\t", "    ").replace("\n", " "))
    return _UNSAFE.sub("", text)


def cell_width(text: str) -> int:
    """Terminal cells that ``text`` takes."""
    return len(text) if text.isascii() else cell_len(text)


def clip(text: str, width: int, ellipsis: str = "…") -> str:
    """``text``, cleaned and cut to at most ``width`` cells; a cut shows an ellipsis."""
    text = clean(text)
    if cell_width(text) <= width:
        return text
    if width <= 0:
        return ""
    kept, room = [], width - 1
    for char in text:
        room -= cell_width(char)
        if room < 0:
            break
        kept.append(char)
    return "".join(kept) + ellipsis


def clip_middle(text: str, width: int, ellipsis: str = "…") -> str:
    """``text`` cut to ``width`` cells in its middle: names that differ at their end stay apart."""
    text = clean(text)
    if cell_width(text) <= width or width < 8:
        return clip(text, width, ellipsis)
    tail = text[-(width // 3) :]
    while cell_width(tail) > width // 3:
        tail = tail[1:]
    return clip(text, width - cell_width(tail), ellipsis) + tail


def clip_start(text: str, width: int, ellipsis: str = "…") -> str:
    """The end of ``text`` in ``width`` cells: of a preset, its own name says more than its family's."""
    text = clean(text)
    if cell_width(text) <= width or width <= 0:
        return clip(text, width, ellipsis)
    while cell_width(text) > width - 1:
        text = text[1:]
    return ellipsis + text


def pad(text: str, width: int, right: bool = False, ellipsis: str = "…") -> str:
    """``text``, cleaned and exactly ``width`` cells wide; ``right`` puts it at the right edge."""
    text = clip(text, width, ellipsis)
    space = " " * (width - cell_width(text))
    return space + text if right else text + space


def line(*pieces: str | Span, selected: bool = False) -> Line:
    """A line of pieces; a bare string has the role ``text``."""
    return Line(tuple((piece, "text") if isinstance(piece, str) else piece for piece in pieces), selected)


def joined(cells: Iterable[Span]) -> list[Span]:
    """Neighbours of one role as one span."""
    return [("".join(text for text, _ in group), role) for role, group in groupby(cells, key=itemgetter(1))]


def width_of(spans: Iterable[Span]) -> int:
    """Cells of the terminal that ``spans`` take; wide characters take two."""
    return sum([cell_width(text) for text, _ in spans])


def cut(spans: Iterable[Span], width: int, ellipsis: str = "…") -> tuple[Span, ...]:
    """``spans`` cut to at most ``width`` cells."""
    return _cut(spans, width, ellipsis)[0]


def _cut(spans: Iterable[Span], room: int, ellipsis: str) -> tuple[tuple[Span, ...], int]:
    """``spans`` cut to at most ``room`` cells, and the cells that they leave."""
    kept: list[Span] = []
    for text, role in spans:
        if room <= 0:
            break
        piece = clip(text, room, ellipsis)
        kept.append((piece, role))
        room -= cell_width(piece)
    return tuple(kept), room


def fit(row: Line, width: int, ellipsis: str = "…") -> Line:
    """``row`` made exactly ``width`` cells wide."""
    spans, short = _cut(row.spans, width, ellipsis)
    return Line((*spans, (" " * short, "text")) if short > 0 else spans, row.selected)


_SECOND_CELL = "\0"
"""Stands behind a wide character while text is wrapped by characters; cleaned text has none."""


def _a_cell_each(text: str) -> str:
    return text if text.isascii() else "".join(char + _SECOND_CELL * (cell_len(char) - 1) for char in text)


def _pieces(word: str, room: int) -> Iterator[str]:
    """A word in pieces of at most ``room`` characters, each up to behind one of its marks where it has one."""
    while len(word) > room:
        cut = max(map(word[:room].rfind, "/=,;:")) + 1 or room - (word[room] == _SECOND_CELL)
        yield word[:cut]
        word = word[cut:]
    yield word


def wrapped(text: str, width: int, first: str, role: Role, mark: Span | None = None) -> list[Line]:
    """``text`` on as many lines as it needs, indented under ``first`` (or under ``mark``).

    What is longer than a line, such as a path, goes on in the next one behind one of its marks where it has any.
    """
    head: Span = mark or (first, role)
    indent = " " * cell_width(head[0])
    room = max(10, width - len(indent))
    text = re.sub(rf"\S{{{room + 1},}}", lambda long: " ".join(_pieces(long[0], room)), _a_cell_each(clean(text)))
    rows = [row.replace(_SECOND_CELL, "") for row in textwrap.wrap(text, room, break_on_hyphens=False)] or [""]
    return [line(head if index == 0 else (indent, role), (row, role)) for index, row in enumerate(rows)]


def rule(left: Sequence[Span], right: Sequence[Span], width: int, glyphs: Glyphs) -> Line:
    """The one thin rule of a pane: who it is on the left, how it stands on the right."""
    if width < 8:
        return Line(((glyphs.rule * max(0, width), "rule"),))
    right = cut(right, width - 6 - min(width_of(left), LEAST_TITLE), glyphs.ellipsis)
    left = cut(left, width - 6 - width_of(right), glyphs.ellipsis)
    head: tuple[Span, ...] = ((f"{glyphs.rule} ", "rule"), *left, (" ", "rule")) if left else ()
    tail: tuple[Span, ...] = ((" ", "rule"), *right, (f" {glyphs.rule}", "rule")) if right else ()
    middle = glyphs.rule * max(0, width - width_of(head) - width_of(tail))
    return Line((*head, (middle, "rule"), *tail))
