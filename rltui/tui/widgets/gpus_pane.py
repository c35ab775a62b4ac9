"""The tab of GPUs: scrolls over any number of nodes and makes only the rows that can be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from rltui.tui.spans import wrapped
from rltui.tui.views import gpus as view
from rltui.tui.views.gpu_roles import ChosenTable
from rltui.tui.widgets.list_pane import ListPane
from rltui.watch.silence import silent_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.tui.spans import Line
    from rltui.watch.snapshots import RunSnapshot

WALL_FROM_NODES = 12
"""Nodes from which the tab opens as a wall."""


class GpusPane(ListPane):
    """Nodes, GPUs and processes of the open run."""

    FILTERS_BY = "node, role, process or idle"
    has_cursor = False

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.wall: bool | None = None
        self.order: view.Order = ""
        self.filtered = ""
        """Words that a card must have in node, role, process or state to be shown."""
        self._snapshot: RunSnapshot | None = None
        self._table: tuple[int, view.GpuTable] | None = None

    def show(self, snapshot: RunSnapshot) -> None:
        """Show another picture."""
        before, self._snapshot = self._snapshot, snapshot
        if before is not None and before.hosts == snapshot.hosts and before.actors == snapshot.actors:
            if silent_nodes(snapshot):
                self.repaint()
            return
        self._table = None
        self.repaint()

    @property
    def is_wall(self) -> bool:
        """Whether each node is one line: as chosen, else where there are many."""
        nodes = len(self._snapshot.hosts) if self._snapshot is not None else 0
        return nodes >= WALL_FROM_NODES if self.wall is None else self.wall

    @property
    def node(self) -> str:
        """The node of the first row in sight; empty where there is none."""
        table = self._rows()
        return table.node(self.top) if table is not None and table.count else ""

    def toggle(self) -> None:
        """The other view."""
        self.wall = not self.is_wall
        self._anew()

    def next_order(self) -> None:
        """By name, the worst nodes first, or each card below its role."""
        self.order = view.ORDERS[(view.ORDERS.index(self.order) + 1) % len(view.ORDERS)]
        self._anew()

    def filter(self, words: str) -> None:
        """Show only cards with these words."""
        self.filtered = words
        self._anew()

    def _anew(self) -> None:
        self._table, self.top = None, 0
        self.repaint()

    def _rows(self) -> view.GpuTable | None:
        width = self.size.width
        if self._snapshot is not None and (self._table is None or self._table[0] != width):
            self._table = (width, self._made(self._snapshot, width))
        return self._table[1] if self._table is not None else None

    def _made(self, snapshot: RunSnapshot, width: int) -> view.GpuTable:
        if self.order == "worst first":
            snapshot = structs.replace(snapshot, hosts=view.worst_first(snapshot))
        if self.filtered or self.order == "by role":
            return ChosenTable(snapshot, width, self.glyphs, self.filtered, by_role=self.order == "by role")
        return view.GpuTable(snapshot, width, self.glyphs, self.is_wall)

    def head(self) -> Sequence[Line]:
        """How many there are."""
        if self._snapshot is None:
            return ()
        table = self._rows()
        words: list[str] = [self.order] if self.order else []
        if isinstance(table, ChosenTable):
            words += [f"/{self.filtered} {table.num_cards}"] if self.filtered else []
        else:
            words.append("v opens nodes" if self.is_wall else "v wall")
        return [view.head(self._snapshot, self.size.width, self.glyphs, words)]

    @property
    def room(self) -> int:
        """Rows that can be seen at once."""
        return max(1, self.size.height - 1)

    def count(self) -> int:
        """Number of rows."""
        table = self._rows()
        return table.count if table is not None else 0

    def row(self, index: int) -> Line:
        """One row."""
        table = self._rows()
        assert table is not None
        return table.row(index)

    def empty(self) -> Sequence[Line]:
        """What stands there before the first sample."""
        if self.filtered and self._snapshot is not None and self._snapshot.hosts:
            return wrapped(
                f"no card has {self.filtered!r} in node, role, process or state", self.size.width, " ", "dim"
            )
        words = "no sampler has spoken yet: nodes appear when the run is placed"
        if self._snapshot is not None and self._snapshot.summary.is_adopted:
            words = "nothing of rltui runs beside an adopted job; :gpus --sample 60 samples its nodes for an hour"
        return wrapped(words, self.size.width, " ", "dim")
