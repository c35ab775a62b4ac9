"""The tab of actors: scrolls over them with a cursor, which stays on its actor whatever the order does."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from rltui.tui.picking import after
from rltui.tui.spans import Line, wrapped
from rltui.tui.views import actors as view
from rltui.tui.widgets.list_pane import MadePane
from rltui.watch.owners import ActorSnapshot
from rltui.watch.snapshots import RunSnapshot


class ActorsPane(MadePane[view.ActorLine]):
    """Ray's actors, or those with some words."""

    FILTERS_BY = "class, name, state or node"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.filtered = ""
        self.order: view.Order = ""
        self._snapshot: RunSnapshot | None = None

    def show(self, snapshot: RunSnapshot) -> None:
        """Show the actors of a newer picture of the run."""
        self._snapshot = snapshot
        self.anew()

    def filter(self, words: str) -> None:
        """Show only actors with these words."""
        self.filtered = words
        self.anew()

    def do_worst_first(self) -> None:
        """By role, the worst first, by memory, by node; the cursor goes to the first."""
        self.order = after(view.ORDERS, self.order)
        super().anew()
        self.go_to(0)

    @property
    def actor(self) -> ActorSnapshot | None:
        """The actor under the cursor."""
        rows = self.made
        return rows[min(self.cursor, len(rows) - 1)].actor if rows else None

    def go_to(self, index: int) -> None:
        """Put the cursor on an actor; lines below it that say why it died are passed over."""
        rows, step = self.made, 1 if index > self.cursor else -1
        index = min(max(0, index), max(0, len(rows) - 1))
        while step > 0 and index < len(rows) and not rows[index].is_first:
            index += 1
        if index >= len(rows):
            index = len(rows) - 1
        while rows and not rows[index].is_first:
            index -= 1
        super().go_to(index)

    def anew(self) -> None:
        """Make the rows again, the cursor on the same actor where it is still there."""
        actor = self.actor
        self._made = (-1, ())
        if actor is not None:
            ids = [row.actor.actor_id for row in self.made]
            self.cursor = ids.index(actor.actor_id) if actor.actor_id in ids else 0
        self.repaint()

    def _pictured(self) -> RunSnapshot | None:
        whole = self._snapshot
        return view.fitting(whole, self.filtered) if whole is not None and self.filtered else whole

    @override
    def make(self, width: int) -> Sequence[view.ActorLine]:
        picture = self._pictured()
        return () if picture is None else view.tab(picture, width, self.glyphs, self.order)

    def head(self) -> Sequence[Line]:
        """How many there are, and the columns."""
        picture = self._pictured()
        return () if picture is None else view.tab_head(picture, self.size.width, self.glyphs, self.order)

    @override
    def row(self, index: int) -> Line:
        return self.made[index].line._replace(selected=self.is_selected(index))

    def empty(self) -> Sequence[Line]:
        """What stands there where there are none."""
        words = "no actors: they appear when Ray is up, and go with it"
        if self.filtered and self._snapshot is not None and self._snapshot.actors:
            words = f"no actor has {self.filtered!r} in {self.FILTERS_BY}"
        return wrapped(words, self.size.width, " ", "dim")
