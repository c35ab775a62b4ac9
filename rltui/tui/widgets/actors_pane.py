"""The tab of actors: scrolls over them with a cursor, which stays on its actor whatever the order does."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from rltui.tui.picking import after
from rltui.tui.spans import Line, wrapped
from rltui.tui.views import actors as view
from rltui.tui.views import tabs
from rltui.tui.widgets.list_pane import ListPane
from rltui.watch.owners import ActorSnapshot
from rltui.watch.snapshots import RunSnapshot


class ActorsPane(ListPane):
    """Ray's actors, or those with some words."""

    FILTERS_BY = "class, name, state or node"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.filtered = ""
        self.order: view.Order = ""
        self._snapshot: RunSnapshot | None = None
        self._made: tuple[int, Sequence[tabs.ActorLine]] = (-1, ())

    def show(self, snapshot: RunSnapshot) -> None:
        """Show the actors of a newer picture of the run."""
        self._snapshot = snapshot
        self._anew()

    def filter(self, words: str) -> None:
        """Show only actors with these words."""
        self.filtered = words
        self._anew()

    def do_worst_first(self) -> None:
        """By role, the worst first, by memory, by node; the cursor goes to the first."""
        self.order = after(view.ORDERS, self.order)
        self._made, self.cursor = (-1, ()), 0
        self.repaint()

    @property
    def actor(self) -> ActorSnapshot | None:
        """The actor under the cursor."""
        rows = self._all()
        return rows[min(self.cursor, len(rows) - 1)].actor if rows else None

    def go_to(self, index: int) -> None:
        """Put the cursor on an actor; lines below it that say why it died are passed over."""
        rows, step = self._all(), 1 if index > self.cursor else -1
        index = min(max(0, index), max(0, len(rows) - 1))
        while step > 0 and index < len(rows) and not rows[index].is_first:
            index += 1
        if index >= len(rows):
            index = len(rows) - 1
        while rows and not rows[index].is_first:
            index -= 1
        super().go_to(index)

    def _anew(self) -> None:
        """Make the rows again, the cursor on the same actor where it is still there."""
        actor = self.actor
        self._made = (-1, ())
        if actor is not None:
            ids = [row.actor.actor_id for row in self._all()]
            self.cursor = ids.index(actor.actor_id) if actor.actor_id in ids else 0
        self.repaint()

    def _pictured(self) -> RunSnapshot | None:
        whole = self._snapshot
        return view.fitting(whole, self.filtered) if whole is not None and self.filtered else whole

    def _all(self) -> Sequence[tabs.ActorLine]:
        width = self.size.width
        if self._made[0] != width and (picture := self._pictured()) is not None:
            self._made = (width, tabs.actors(picture, width, self.glyphs, self.order))
        return self._made[1]

    def head(self) -> Sequence[Line]:
        """How many there are, and the columns."""
        picture = self._pictured()
        return () if picture is None else tabs.actors_head(picture, self.size.width, self.glyphs, self.order)

    @override
    def count(self) -> int:
        return len(self._all())

    @override
    def row(self, index: int) -> Line:
        return self._all()[index].line._replace(selected=self.is_selected(index))

    def empty(self) -> Sequence[Line]:
        """What stands there where there are none."""
        words = "no actors: they appear when Ray is up, and go with it"
        if self.filtered and self._snapshot is not None and self._snapshot.actors:
            words = f"no actor has {self.filtered!r} in {self.FILTERS_BY}"
        return wrapped(words, self.size.width, " ", "dim")
