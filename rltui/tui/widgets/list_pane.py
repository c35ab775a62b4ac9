"""A pane that scrolls over rows, with or without a cursor; it makes only the rows that can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from textual import events
from typing_extensions import override

from rltui.tui.messages import CursorMoved, LineOpened
from rltui.tui.spans import Line, line
from rltui.tui.widgets.pane import Pane

Item = TypeVar("Item")

WHEEL_ROWS = 3
PAN_CELLS = 16


class ListPane(Pane):
    """Rows below fixed head lines. Subclasses say how many rows there are and what each looks like."""

    has_cursor = True

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.cursor = 0
        self.top = 0
        self.panned = 0
        """Cells of long lines that are left of the view, where the pane moves them."""
        self.is_awaited = False
        """Whether what it shows is being read, so that nothing can be said of it yet."""

    def head(self) -> Sequence[Line]:
        """Lines that stay above the rows."""
        return ()

    def count(self) -> int:
        """How many rows there are."""
        raise NotImplementedError

    def row(self, index: int) -> Line:
        """The line that stands at an index; asked only for what is in view."""
        raise NotImplementedError

    def empty(self) -> Sequence[Line]:
        """What stands there where there are no rows."""
        return ()

    @override
    def build(self) -> Sequence[Line]:
        head = list(self.head())
        total = self.count()
        if not total:
            reading = line((f" reading {self.glyphs.ellipsis}", "dim"))
            return [*head, *([reading] if self.is_awaited else self.empty())]
        room = max(1, self.size.height - len(head))
        self._keep_in_sight(total, room)
        rows = range(self.top, min(total, self.top + room))
        return head + [self.row(index) for index in rows]

    def is_selected(self, index: int) -> bool:
        """Whether the cursor is on a row."""
        return self.has_cursor and index == self.cursor

    def _keep_in_sight(self, total: int, room: int) -> None:
        if self.has_cursor:
            self.cursor = min(max(0, self.cursor), total - 1)
            self.top = min(max(self.top, self.cursor - room + 1), self.cursor)
        self.top = min(max(0, self.top), max(0, total - room))

    @property
    def room(self) -> int:
        """Rows that can be seen at once."""
        return max(1, self.size.height - len(self.head()))

    @property
    def below(self) -> int:
        """Rows that are out of sight at the foot."""
        total, room = self.count(), self.room
        return max(0, total - min(self.top, max(0, total - room)) - room)

    def move(self, rows: int) -> None:
        """Move the cursor, or the view where there is none."""
        self.go_to((self.cursor if self.has_cursor else self.top) + rows)

    def back_to_all(self) -> bool:
        """Show all rows again where one thing is shown alone; whether it was."""
        return False

    def pan(self, step: int) -> None:
        """Show lines that are wider than the pane from further right, or left."""
        self.panned = max(0, self.panned + step * PAN_CELLS)
        self.repaint()

    def do_pan_right(self) -> None:
        """Show what is further right."""
        self.pan(1)

    def do_pan_left(self) -> None:
        """Show what is further left."""
        self.pan(-1)

    def page(self, pages: int) -> None:
        """Move the cursor by pages, of which neighbours share a line."""
        self.move(pages * max(1, self.room - 1))

    def go_to(self, index: int) -> None:
        """Put the cursor, or the top of the view where there is none, at a row."""
        last = self.count() - (1 if self.has_cursor else self.room)
        index = min(max(0, index), max(0, last))
        if self.has_cursor:
            self.cursor = index
        else:
            self.top = index
        self.repaint()

    def go_to_end(self) -> None:
        """Go to the last row."""
        self.go_to(self.count())

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel moves as the arrow keys do."""
        event.stop()
        self.move(1 if self.has_cursor else WHEEL_ROWS)
        self.post_message(CursorMoved())

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel moves as the arrow keys do."""
        event.stop()
        self.move(-1 if self.has_cursor else -WHEEL_ROWS)
        self.post_message(CursorMoved())

    def on_click(self, event: events.Click) -> None:
        """A click selects, a double click opens."""
        index = self.top + event.y - len(self.head())
        if not self.has_cursor or not 0 <= index < self.count() or event.y < self.size.height - self.room:
            return
        self.go_to(index)
        self.post_message(LineOpened() if event.chain == 2 else CursorMoved())


class MadePane(ListPane, Generic[Item]):
    """Rows that are all made at once, and kept until the width or what they say changes. Subclasses make them."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._made: tuple[int, Sequence[Item]] = (-1, ())

    def make(self, width: int) -> Sequence[Item]:
        """All rows for a width."""
        raise NotImplementedError

    @property
    def made(self) -> Sequence[Item]:
        """All rows for the present width."""
        if self._made[0] != self.size.width:
            self._made = (self.size.width, self.make(self.size.width))
        return self._made[1]

    def anew(self) -> None:
        """Make them again: what they say has changed."""
        self._made = (-1, ())
        self.repaint()

    @override
    def count(self) -> int:
        return len(self.made)


class TextPane(MadePane[Line]):
    """Lines to scroll over, without a cursor."""

    has_cursor = False

    @override
    def row(self, index: int) -> Line:
        return self.made[index]


class ItemsPane(ListPane, Generic[Item]):
    """A row an item, with a cursor that stays on its item when others are listed. Subclasses say which is which."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.items: Sequence[Item] = ()

    def key_of(self, item: Item) -> object:
        """What an item is known by."""
        raise NotImplementedError

    def put(self, items: Sequence[Item]) -> None:
        """List these; where the cursor's item is gone it goes to the first."""
        chosen = self.key_of(self.selected) if self.selected is not None else None
        self.items = items
        self.cursor = next((place for place, one in enumerate(items) if self.key_of(one) == chosen), 0)
        self.repaint()

    @property
    def selected(self) -> Item | None:
        """The item under the cursor."""
        return self.items[self.cursor] if self.cursor < len(self.items) else None

    @override
    def count(self) -> int:
        return len(self.items)
