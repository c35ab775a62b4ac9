"""The list behind `!`: the cursor goes from finding to evidence to remedy."""

from __future__ import annotations

from collections.abc import Sequence

from rltui.service.cockpit import WhyReport
from rltui.tui.spans import Line, line, wrapped
from rltui.tui.views import why as view
from rltui.tui.widgets.list_pane import ListPane


class WhyPane(ListPane):
    """A report, line by line."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._report: WhyReport | None = None
        self._problem = ""
        self._made: tuple[int, list[view.WhyLine]] = (-1, [])

    def show(self, report: WhyReport) -> None:
        """Show a report; the cursor stays where it was in one that says the same."""
        if report == self._report:
            return
        self._report = report
        self._made = (-1, [])
        rows = self.lines
        self.cursor = next((index for index, row in enumerate(rows) if row.leads), 0)
        self.top = 0
        self.repaint()

    def fail(self, problem: str) -> None:
        """Say why there is no report where there is none; empty while it is asked for again."""
        self._problem = problem
        self.repaint()

    @property
    def report(self) -> WhyReport | None:
        """What is shown."""
        return self._report

    @property
    def lines(self) -> list[view.WhyLine]:
        """All lines for the present width."""
        width = self.size.width or 80
        if self._made[0] != width and self._report is not None:
            before = self.selected if self._made[1] else None
            made = view.why_lines(self._report, width, self.glyphs)
            self._made = (width, made)
            if before is not None:  # another width breaks the lines elsewhere
                self.cursor = _place_of(before, made)
        return self._made[1]

    @property
    def selected(self) -> view.WhyLine | None:
        """The line under the cursor."""
        lines = self._made[1]
        return lines[self.cursor] if self.cursor < len(lines) else None

    def move(self, rows: int) -> None:
        """To the next line on which the cursor rests; pages go to the nearest."""
        if abs(rows) > 1:
            self.go_to(self.cursor + rows)
            return
        stops = [index for index, row in enumerate(self.lines) if row.stop]
        beyond = [index for index in stops if (index - self.cursor) * rows > 0]
        if beyond:
            super().go_to(min(beyond) if rows > 0 else max(beyond))

    def go_to(self, index: int) -> None:
        """To the line on which the cursor rests that is nearest."""
        stops = [number for number, row in enumerate(self.lines) if row.stop]
        if stops:
            super().go_to(min(stops, key=lambda number: abs(number - index)))

    def build(self) -> Sequence[Line]:
        """From the top, where the first stop can be seen from there: what stands above it is its headline."""
        if self.cursor < self.size.height and self.cursor <= next(
            (index for index, row in enumerate(self.lines) if row.leads), 0
        ):
            self.top = 0
        return super().build()

    def count(self) -> int:
        """Number of lines."""
        return len(self.lines)

    def row(self, index: int) -> Line:
        """One line."""
        row = self.lines[index].line
        if not self.is_selected(index):
            return row
        spans = row.spans
        if spans and spans[0][0].startswith(" "):
            spans = ((self.glyphs.cursor, "accent"), (spans[0][0][1:], spans[0][1]), *spans[1:])
        return Line(spans, selected=True)

    def empty(self) -> Sequence[Line]:
        """What stands there while the logs are read, or why they could not be."""
        if self._problem:
            return wrapped(f"{self._problem}  r tries again", self.size.width, " ", "attention")
        return [line((f" reading the logs {self.glyphs.ellipsis}", "dim"))]


def _place_of(before: view.WhyLine, lines: Sequence[view.WhyLine]) -> int:
    same = [
        index
        for index, row in enumerate(lines)
        if (row.finding, row.evidence, row.fix, row.stop) == (before.finding, before.evidence, before.fix, before.stop)
    ]
    return same[0] if same else 0
