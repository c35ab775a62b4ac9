"""The log: scroll, follow, search, pan. What it shows is text and nothing else, whatever a process printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.tui import logtext
from rltui.tui.spans import Line, line, rule
from rltui.tui.views.parts import log_role
from rltui.tui.widgets.list_pane import ListPane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.tui.spans import Span
    from rltui.watch.snapshots import RunSnapshot

PAN_CELLS = 16


class LogPane(ListPane):
    """The tail of the log of the open run."""

    has_cursor = False

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.lines: tuple[str, ...] = ()
        self.following = True
        self.words = ""
        self.hit: int | None = None
        self._pan = 0
        self._hits: list[int] = []
        self._reveal = False  # the hit is brought into sight when the pane is drawn: only then its height is known

    def show(self, snapshot: RunSnapshot) -> None:
        """Take the newest tail; a view that does not follow stays at its lines."""
        before, self.lines = self.lines, snapshot.log.lines
        if before is self.lines:
            return
        gone = logtext.dropped(before, self.lines)
        self._hits = logtext.hits(self.lines, self.words)
        self.hit = None if self.hit is None or self.hit < gone else self.hit - gone
        self.top = max(0, self.top - gone)
        self.repaint()

    def build(self) -> Sequence[Line]:
        """The end where the log is followed, else the lines that were there."""
        if self.following:
            self.top = max(0, len(self.lines) - self.room)
        elif self._reveal and self.hit is not None and not self.top <= self.hit < self.top + self.room:
            self.top = max(0, self.hit - self.room // 2)
        self._reveal = False
        return super().build()

    def follow(self) -> None:
        """Stay at the end, or stop doing so."""
        self.following = not self.following
        self.repaint()

    def go_to(self, index: int) -> None:
        """Going up leaves the end; going to the end follows again."""
        end = max(0, len(self.lines) - self.room)
        self.following = index >= end
        super().go_to(index)
        self.repaint()

    def search(self, words: str) -> int:
        """Mark ``words`` and show the last line with them; the number of lines found comes back."""
        self.words = words
        self._hits = logtext.hits(self.lines, words)
        self.hit = None
        self.step(-1, from_line=len(self.lines))
        self.repaint()
        return len(self._hits)

    def step(self, step: int, from_line: int | None = None) -> None:
        """Go to the next hit (1) or the one before (-1)."""
        at = from_line if from_line is not None else self.hit if self.hit is not None else self.top
        self.hit = logtext.next_hit(self._hits, at, step)
        if self.hit is not None:
            self.following = False
            self._reveal = True
        self.repaint()

    def pan(self, step: int) -> None:
        """Move long lines sideways."""
        self._pan = max(0, self._pan + step * PAN_CELLS)
        self.repaint()

    @property
    def line_to_copy(self) -> str:
        """The line of the hit, or the last one that can be seen."""
        index = self.hit if self.hit is not None else min(len(self.lines), self.top + self.room) - 1
        return self.lines[index] if 0 <= index < len(self.lines) else ""

    def head(self) -> Sequence[Line]:
        """The rule: what is searched, and whether the end is followed."""
        glyphs = self.glyphs
        left: list[Span] = [("log", "title")]
        if self.words:
            left += [(f" {glyphs.dot} ", "dim"), (self.words, "match"), (f" {len(self._hits)} lines", "dim")]
        last = min(len(self.lines), self.top + self.room)
        where = f"{last}/{len(self.lines)}"
        right: tuple[Span, ...] = ((f"{where}  ", "dim"), ("follow", "ok") if self.following else ("f follows", "dim"))
        return [rule(left, right, self.size.width, glyphs)]

    @property
    def room(self) -> int:
        """Rows that can be seen at once."""
        return max(1, self.size.height - 1)

    def count(self) -> int:
        """Number of lines."""
        return len(self.lines)

    def row(self, index: int) -> Line:
        """One line of the log."""
        text = self.lines[index]
        here = self.glyphs.cursor if index == self.hit else " "
        shown = text[self._pan :] if self._pan else text
        return line(
            (here, "accent"),
            *logtext.marked(shown, self.words, log_role(text), self.size.width - 1, self.glyphs.ellipsis),
        )

    def empty(self) -> Sequence[Line]:
        """What an empty log says."""
        return [line((" nothing has been printed yet", "dim"))]
