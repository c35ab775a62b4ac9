"""A list of samples, and the one under the cursor in full below it, beside it, or in its place."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partialmethod

from msgspec import structs
from textual import events
from typing_extensions import override

from rltui.tui.messages import CursorMoved, LineOpened
from rltui.tui.spans import Line, fit
from rltui.tui.views import samples as view
from rltui.tui.widgets.list_pane import ListPane
from rltui.watch.samples import PIECE_BYTES, Sample, SampleGroup, SampleQuery, SamplesFound
from rltui.watch.snapshots import RunSnapshot

BELOW_FROM = 14
"""Rows from which the chosen sample stands below the list."""
BESIDE_FROM = 110
"""Columns from which it stands beside it."""


class SamplesPane(ListPane):
    """Answers of a run, with their rewards, newest first, or those that a search found."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.query_shown = SampleQuery()
        self.found: SamplesFound | None = None
        self.group: SampleGroup | None = None
        self.whole = False
        self.differing = False
        self.problem = ""
        self._scroll = 0
        self._made: tuple[object, list[Line]] = (None, [])

    def show(self, snapshot: RunSnapshot) -> None:
        """A picture of the run has no samples in it: they are asked for."""

    def expect(self, query: SampleQuery) -> None:
        """Say that these are being searched; the same ones stay in sight until then."""
        if query != self.query_shown:
            self.query_shown, self.found, self.group = query, None, None
            self.cursor = self.top = self._scroll = 0
        self.problem = ""
        self.repaint()

    def fail(self, problem: str) -> None:
        """Say why they cannot be shown."""
        self.problem = problem
        self.repaint()

    def take(self, query: SampleQuery, found: SamplesFound) -> None:
        """Take what was found so far; the cursor stays on its sample, and on the first row where it was there."""
        if query != self.query_shown:
            return
        before, self.found = self.selected, found
        if before is not None and self.cursor:
            places = {(one.path, one.offset): index for index, one in enumerate(found.samples)}
            self.cursor = places.get((before.path, before.offset), self.cursor)
        self.repaint()

    def take_group(self, group: SampleGroup) -> None:
        """Take a sample in full, if it is still the one under the cursor."""
        one = self.selected
        if one is not None and (one.path, one.offset) == (group.chosen.path, group.chosen.offset):
            self.group = group
            self.repaint()

    @property
    def selected(self) -> Sample | None:
        """The sample under the cursor."""
        rows = self.found.samples if self.found is not None else ()
        return rows[self.cursor] if self.cursor < len(rows) else None

    @property
    def shown(self) -> SampleGroup | None:
        """The sample under the cursor, or the sibling of it that was gone to; its first words until it was read."""
        one = self.selected
        if one is None:
            return None
        known = self.group if self.knows(one) else None
        return known or SampleGroup(chosen=one, siblings=(one,))

    @property
    def costs_little(self) -> bool:
        """Whether the last search is over and read so little that it may be done again by itself."""
        return self.found is not None and self.found.share == 1.0 and self.found.read_bytes <= PIECE_BYTES

    def _step(self, step: int) -> None:
        group = self.shown
        if group is not None and len(group.siblings) > 1:
            here = next(i for i, one in enumerate(group.siblings) if one.offset == group.chosen.offset)
            self.group = structs.replace(group, chosen=group.siblings[(here + step) % len(group.siblings)])
            self.repaint()

    do_next_sibling = partialmethod(_step, 1)
    do_previous_sibling = partialmethod(_step, -1)

    def do_whole(self) -> None:
        """Show the sample alone, or the list again."""
        if self.whole or self.selected is not None:
            self.whole, self._scroll = not self.whole, 0
            self.repaint()

    def back_to_all(self) -> bool:
        """Show the list again; whether a sample stood alone."""
        if was_alone := self.whole:
            self.do_whole()
        return was_alone

    def do_differences(self) -> None:
        """Show which words differ from the best sibling, or do not."""
        self.differing = not self.differing
        self.repaint()

    def page(self, pages: int) -> None:
        """Page through the sample where it is in sight, else through the list."""
        if not self.whole and not self._has_detail:
            super().page(pages)
            return
        self._scroll = max(0, self._scroll + pages * max(1, self._detail_rows - 1))
        self.repaint()

    def move(self, rows: int) -> None:
        """Move the cursor; where the sample stands alone, its lines."""
        if self.whole:
            self._scroll = max(0, self._scroll + rows)
            self.repaint()
        else:
            super().move(rows)

    def go_to(self, index: int) -> None:
        """Put the cursor at a row; the sample there is shown from its start."""
        if self.whole:
            self._scroll = max(0, index)
            self.repaint()
            return
        self._scroll = 0
        super().go_to(index)
        one = self.selected
        whole = self._in_full(one) if one is not None else None
        if whole is not None and self.group is not None:
            self.group = structs.replace(self.group, chosen=whole)
            self.repaint()

    def knows(self, one: Sample) -> bool:
        """Whether a sample was read in full, itself or with a sibling."""
        return self._in_full(one) is not None

    def _in_full(self, one: Sample) -> Sample | None:
        group = self.group.siblings if self.group is not None else ()
        return next((each for each in group if (each.path, each.offset) == (one.path, one.offset)), None)

    # --- painting

    @override
    def head(self) -> Sequence[Line]:
        return view.head(self.query_shown, self.found, self.size.width, self._list_width, self.glyphs)

    @override
    def count(self) -> int:
        return len(self.found.samples) if self.found is not None else 0

    def row(self, index: int) -> Line:
        """One sample of the list."""
        assert self.found is not None
        selected = self.is_selected(index)
        return view.row(self.found.samples[index], self._list_width, self.glyphs, selected=selected)

    @override
    def empty(self) -> Sequence[Line]:
        if self.problem:
            return view.empty(self.problem, self.size.width)
        if self.found is None or self.found.share < 1.0:
            return []
        wanted = self.query_shown
        return view.empty(self.found.note or f"no sample has {wanted.text or wanted.grep}", self.size.width)

    @property
    def _is_beside(self) -> bool:
        return self.size.width >= BESIDE_FROM

    @property
    def _has_detail(self) -> bool:
        return self._is_beside or self.size.height >= BELOW_FROM

    @property
    def _list_width(self) -> int:
        return self.size.width * 2 // 5 if self._is_beside else self.size.width

    @property
    def room(self) -> int:
        """Rows of the list that can be seen at once."""
        rows = max(1, self.size.height - 2)
        return max(3, rows // 3) if self._has_detail and not self._is_beside else rows

    @property
    def _detail_rows(self) -> int:
        """Rows of the sample that can be seen at once."""
        rows = max(1, self.size.height - 2)
        if self.whole:
            return self.size.height
        return rows if self._is_beside else max(1, rows - min(self.room, self.count()))

    def build(self) -> Sequence[Line]:
        """List and sample, as there is room for them."""
        if self.whole and self.shown is not None:
            return self._detail(self.size.width)
        head, total = list(self.head()), self.count()
        if not total:
            return [*head, *self.empty()]
        self._keep_in_sight(total, self.room)
        rows = [self.row(index) for index in range(self.top, min(total, self.top + self.room))]
        if self._is_beside:
            return [*head, *self._beside(rows)]
        return [*head, *rows, *(self._detail(self.size.width) if self._has_detail else ())]

    def _beside(self, rows: Sequence[Line]) -> list[Line]:
        left, right = self._list_width, self._detail(self.size.width - self._list_width - 2)
        lines = []
        for index in range(max(len(rows), len(right))):
            one = fit(rows[index] if index < len(rows) else Line(), left, self.glyphs.ellipsis)
            other = right[index].spans if index < len(right) else ()
            lines.append(Line((*one.spans, ("│ ", "rule"), *other)))
        return lines

    def _detail(self, width: int) -> Sequence[Line]:
        group = self.shown
        if group is None:
            return ()
        made_of = (group, width, self.differing, self.glyphs.ascii_only)
        if self._made[0] != made_of:
            self._made = (made_of, view.detail(group, width, self.glyphs, differing=self.differing))
        rows = self._made[1]
        self._scroll = min(self._scroll, max(0, len(rows) - self._detail_rows))
        return rows[self._scroll : self._scroll + self._detail_rows]

    def on_click(self, event: events.Click) -> None:
        """A click on the list selects, a double click shows the sample alone."""
        at = event.y - 2
        if self.whole or event.x >= self._list_width or not 0 <= at < self.room or self.top + at >= self.count():
            return
        self.go_to(self.top + at)
        self.post_message(LineOpened() if event.chain == 2 else CursorMoved())
