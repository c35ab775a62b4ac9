"""The header, the footer and the tab bar: panes of one line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from textual import events
from typing_extensions import override

from rltui.tui.keys import Hint
from rltui.tui.spans import Line, Span, line, width_of
from rltui.tui.views import bars
from rltui.tui.widgets.pane import Pane


class HeaderBar(Pane):
    """Where you are and how fresh it is."""

    def __init__(self) -> None:
        super().__init__(id="header")
        self._shown: tuple[tuple[str, ...], tuple[Span, ...], bars.Health] = ((), (), bars.Health())

    def show(self, crumbs: Sequence[str], state: Sequence[Span], health: bars.Health) -> None:
        """Show another place or state."""
        self._shown = (tuple(crumbs), tuple(state), health)
        self.repaint()

    @override
    def build(self) -> Sequence[Line]:
        return [bars.header(*self._shown, self.size.width, self.glyphs)]


class FooterBar(Pane):
    """The lowest line: keys that help at this moment."""

    def __init__(self) -> None:
        super().__init__(id="footer")
        self._hints: tuple[Hint, ...] = ()

    def show(self, hints: Sequence[Hint]) -> None:
        """Show other keys."""
        self._hints = tuple(hints)
        self.repaint()

    @override
    def build(self) -> Sequence[Line]:
        return [bars.footer(self._hints, self.size.width)]


class TabBar(Pane):
    """Numbered tabs; where they do not fit, without spaces, with shorter names, and then only the current one's."""

    def __init__(self, titles: Sequence[str], opens: Callable[[int], None]) -> None:
        super().__init__(id="tabs")
        self._titles, self._opens = tuple(titles), opens
        self.current = 0

    def show(self, current: int) -> None:
        """Mark another tab as the one that is open."""
        self.current = current
        self.repaint()

    def _cells(self, form: Literal["wide", "tight", "numbers"], letters: int | None = None) -> list[Span]:
        cells: list[Span] = []
        for index, title in enumerate(self._titles):
            here, key = index == self.current, _tab_key(index)
            words = f" {key} {title} " if form == "wide" or (here and form == "numbers") else f" {key} "
            if form == "tight":
                words = f"{key}{title if here else title[:letters]}" + (" " if index + 1 < len(self._titles) else "")
            cells.append((words, "key" if here else "dim"))
        return cells

    def _fitting(self) -> list[Span]:
        shorter = [self._cells("tight", letters) for letters in range(7, 2, -1)]
        forms = [self._cells("wide"), self._cells("tight"), *shorter, self._cells("numbers")]
        return next((cells for cells in forms if width_of(cells) <= self.size.width), forms[-1])

    @override
    def build(self) -> Sequence[Line]:
        return [line(*self._fitting())]

    def tab_at(self, x: int) -> int | None:
        """The tab drawn at a cell."""
        edge = 0
        for index, cell in enumerate(self._fitting()):
            edge += width_of([cell])
            if x < edge:
                return index
        return None

    def on_click(self, event: events.Click) -> None:
        """A click opens the tab, as its digit does."""
        index = self.tab_at(event.x)
        if index is not None:
            self._opens(index)


def _tab_key(index: int) -> str:
    """The digit of a tab; the tenth has 0, and those of plug-ins behind it share a key."""
    return str((index + 1) % 10) if index < 10 else "P"
