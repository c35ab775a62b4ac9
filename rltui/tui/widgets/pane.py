"""The base of everything that is drawn: a pane asks for its lines, and repaints only those that have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from rltui.tui.glyphs import UNICODE, to_ascii
from rltui.tui.spans import BLANK, ROLES, clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.style import Style
    from textual.geometry import Size

    from rltui.tui.glyphs import Glyphs
    from rltui.tui.spans import Line


class Pane(Widget, can_focus=False):
    """Paints the lines that :meth:`build` returns for its size."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"role--{role}" for role in ROLES} | {"row--selected"}

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
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
        """Make the lines again; those that are as before are not sent to the terminal."""
        if self._built_for != self.size or not self.size:
            self._built_for = None
            self.refresh()
            return
        before, self._lines = self._lines, list(self.build()[: self.size.height])
        rows = max(len(before), len(self._lines))
        changed = [row for row in range(rows) if _at(before, row) != _at(self._lines, row)]
        if changed:
            self.refresh(*(Region(0, row, self.size.width, 1) for row in changed))

    def render_line(self, y: int) -> Strip:
        """One line of the pane (Textual's Line API); a new size is seen here, and not by an event that comes later."""
        if self._built_for != self.size:
            self._built_for = self.size
            self._lines = list(self.build()[: self.size.height])
        row = _at(self._lines, y)
        # Component styles are cached by Textual; the widget's own style is computed from all its ancestors each time.
        base = self.get_component_rich_style("row--selected" if row.selected else "role--text")
        segments = [Segment(self._safe(text), self._style(role, base)) for text, role in row.spans]
        return Strip(segments).adjust_cell_length(self.size.width, base)

    def _style(self, role: str, base: Style) -> Style:
        if role == "text":
            return base
        style = self.get_component_rich_style(f"role--{role}", partial=True)
        return base + style

    def _safe(self, text: str) -> str:
        # The views clean what they measure; this is the last gate before the terminal.
        text = clean(text)
        return to_ascii(text) if self.glyphs.ascii_only else text


def _at(lines: Sequence[Line], row: int) -> Line:
    return lines[row] if row < len(lines) else BLANK
