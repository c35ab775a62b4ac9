"""The base of everything that is drawn: a pane asks for its lines, and repaints only what has changed in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from rltui.tui.glyphs import UNICODE, to_ascii
from rltui.tui.spans import BLANK, ROLES, cell_width, clean, width_of

if TYPE_CHECKING:
    from rich.style import Style
    from textual.geometry import Size

    from rltui.tui.glyphs import Glyphs
    from rltui.tui.spans import Line, Span


SHOWN_ON_BLANKS = ("match", "off")
"""Roles that are seen on a blank too: reversed or struck out."""


class Pane(Widget, can_focus=False):
    """Paints the lines that :meth:`build` returns for its size."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"role--{role}" for role in ROLES} | {"row--selected"}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._built_for: Size | None = None

    @property
    def glyphs(self) -> Glyphs:
        """The alphabet of the application."""
        glyphs: Glyphs = getattr(self.app, "glyphs", UNICODE)
        return glyphs

    def build(self) -> Sequence[Line]:
        """Lines for the present size; what is missing is blank, what is too much is cut."""
        raise NotImplementedError

    def repaint(self) -> None:
        """Make the lines again; what is as before is not sent to the terminal."""
        if self._built_for != self.size or not self.size:
            self._built_for = None
            self.refresh()
            return
        before, self._lines = self._lines, list(self.build()[: self.size.height])
        rows = range(max(len(before), len(self._lines)))
        regions = [changed_part(_at(before, row), _at(self._lines, row), row, self.size.width) for row in rows]
        changed = [region for region in regions if region]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        """One line of the pane (Textual's Line API); a new size is seen here, and not by an event that comes later."""
        if self._built_for != self.size:
            self._built_for = self.size
            self._lines = list(self.build()[: self.size.height])
        row = _at(self._lines, y)
        # Component styles are cached by Textual; the widget's own style is computed from all its ancestors each time.
        base = self.get_component_rich_style("row--selected" if row.selected else "role--text")
        spans, ascii_only = _merged(row.spans), self.glyphs.ascii_only
        # Looked up once a line, not once a span: a wall of GPUs has hundreds of spans of four looks.
        styles = {role: self._style(role, base) for role in {role for _, role in spans}}
        segments = [Segment(_safe(text, ascii_only), styles[role]) for text, role in spans]
        return Strip(segments).adjust_cell_length(self.size.width, base)

    def _style(self, role: str, base: Style) -> Style:
        if role == "text":
            return base
        style = self.get_component_rich_style(f"role--{role}", partial=True)
        return base + style


def _safe(text: str, ascii_only: bool) -> str:
    # The views clean what they measure; this is the last gate before the terminal.
    text = clean(text)
    return to_ascii(text) if ascii_only else text


def _at(lines: Sequence[Line], row: int) -> Line:
    return lines[row] if row < len(lines) else BLANK


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Spans of one look as one; blanks take the look before them where it shows on letters only.

    Each span costs twenty bytes of colour on the way to the terminal.
    """
    merged: list[Span] = []
    for text, role in spans:
        if merged and text.isspace() and merged[-1][1] not in SHOWN_ON_BLANKS:
            role = merged[-1][1]
        if merged and merged[-1][1] == role:
            merged[-1] = (merged[-1][0] + text, role)
        elif text:
            merged.append((text, role))
    return merged


def changed_part(before: Line, after: Line, row: int, width: int) -> Region:
    """The part of a row between the spans that are as before on its left and on its right; empty where all are."""
    if before == after:
        return Region()
    if before.selected != after.selected:
        return Region(0, row, width, 1)
    left = _same(before.spans, after.spans)
    end, cells = width, width_of(after.spans)
    if before.spans[-1:] == after.spans[-1:] and width_of(before.spans) == cells:
        end = min(width, cells - _same(before.spans[::-1], after.spans[::-1]))  # a line may be longer than the pane
    return Region(left, row, max(1, end - left), 1)


def _same(one: Sequence[Span], other: Sequence[Span]) -> int:
    """Cells of the spans that both begin with."""
    same = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        same += cell_width(mine[0])
    return same
