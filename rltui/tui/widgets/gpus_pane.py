"""The tab of GPUs: scrolls over any number of nodes and makes only the rows that can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import structs
from typing_extensions import override

from rltui.tui.picking import after
from rltui.tui.spans import Line, wrapped
from rltui.tui.views import gpus as view
from rltui.tui.views.gpu_map import MapTable
from rltui.tui.widgets.list_pane import ListPane
from rltui.watch.silence import silent_nodes
from rltui.watch.snapshots import RunSnapshot

View = Literal["cards", "wall", "map"]
VIEWS: tuple[View, ...] = ("cards", "wall", "map")
"""Every card and process, a line a node, a mark a node."""

WALL_FROM_NODES, MAP_FROM_NODES = 12, 100
"""Nodes from which the tab opens as a wall, and as a map."""

DRAWN = ("hosts", "actors", "events", "stragglers", "role_memory")
"""What of a picture is drawn here where there are nodes; where there are none the state of the run is told, too."""


class GpusPane(ListPane):
    """Nodes, GPUs and processes of the open run."""

    FILTERS_BY = "node, role, process or idle"
    has_cursor = False

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.chosen: View | None = None
        """What was asked for; None: as fits the number of nodes."""
        self._under = ""
        """The node under the map's cursor."""
        self._came_from_map = False
        self.order: view.Order = ""
        self.filtered = ""
        """Words that a card must have in node, role, process or state to be shown."""
        self._snapshot: RunSnapshot | None = None
        self._table: tuple[int, view.GpuTable | MapTable] | None = None

    def show(self, snapshot: RunSnapshot) -> None:
        """Show the cards of a newer picture of the run, if anything of them is new."""
        before, self._snapshot = self._snapshot, snapshot
        if snapshot.hosts and before is not None and all(getattr(before, n) == getattr(snapshot, n) for n in DRAWN):
            if silent_nodes(snapshot):
                self.repaint()
            return
        self._table = None
        self.repaint()

    @property
    def shown(self) -> View:
        """As chosen, else as fits the number of nodes; cards by role, and a filter's, are always cards."""
        nodes = len(self._snapshot.hosts) if self._snapshot is not None else 0
        if self.filtered or self.order == "by role":
            return "cards"
        return self.chosen or ("map" if nodes >= MAP_FROM_NODES else "wall" if nodes >= WALL_FROM_NODES else "cards")

    @property
    def node(self) -> str:
        """The node under the map's cursor, else of the first row in sight; empty where there is none."""
        table = self._rows()
        if table is None or not table.count:
            return ""
        return table.node(self._cell(table) if isinstance(table, MapTable) else self.top)

    def do_wall(self) -> None:
        """Go on to the next view: by node, by role, the map."""
        self.chosen = self._next
        self._came_from_map = False
        self._anew()

    @property
    def _next(self) -> View:
        return after(VIEWS, self.shown)

    def do_whole(self) -> None:
        """From the map to the cards of the node under its cursor."""
        node = self.node
        if self.shown == "map" and node:
            self.chosen, self._came_from_map = "cards", True
            self._anew()
            table = self._rows()
            assert isinstance(table, view.GpuTable)
            self.top = table.first_row(node)
            self.repaint()

    def back_to_all(self) -> bool:
        """Go back to the map from the cards that it led to; whether there is such a way."""
        came, self._came_from_map = self._came_from_map and self.shown == "cards", False
        if came:
            self.chosen = "map"
            self._anew()
        return came

    def sideways(self, step: int) -> bool:
        """Move the map's cursor; whether there is one."""
        table = self._rows()
        if not isinstance(table, MapTable):
            return False
        self._put(table, self._cell(table) + step)
        return True

    def move(self, rows: int) -> None:
        """Move the view, or the map's cursor."""
        table = self._rows()
        if isinstance(table, MapTable):
            self._put(table, self._cell(table) + rows * table.columns)
        else:
            super().move(rows)

    def go_to(self, index: int) -> None:
        """Put the top of the view at a row, or the map's cursor on its first node."""
        table = self._rows()
        if isinstance(table, MapTable):
            self._put(table, index * table.columns)
        else:
            super().go_to(index)

    def _put(self, table: MapTable, cell: int) -> None:
        cell = min(max(0, cell), table.num_nodes - 1)
        self._under = table.node(cell)
        row = cell // table.columns
        self.top = min(max(self.top, row - self.room + 1), row)
        self.repaint()

    def _cell(self, table: MapTable) -> int:
        return table.place(self._under) if self._under else 0

    def do_worst_first(self) -> None:
        """By name, the worst nodes first, or each card below its role."""
        self.order = after(view.ORDERS, self.order)
        self._anew()

    def filter(self, words: str) -> None:
        """Show only cards with these words."""
        self.filtered = words
        self._anew()

    def _anew(self) -> None:
        self._table, self.top = None, 0
        self.repaint()

    def _rows(self) -> view.GpuTable | MapTable | None:
        width = self.size.width
        if self._snapshot is not None and (self._table is None or self._table[0] != width):
            self._table = (width, self._made(self._snapshot, width))
        return self._table[1] if self._table is not None else None

    def _made(self, snapshot: RunSnapshot, width: int) -> view.GpuTable | MapTable:
        if self.order == "worst first":
            snapshot = structs.replace(snapshot, hosts=view.worst_first(snapshot))
        if self.filtered or self.order == "by role":
            return view.ChosenTable(snapshot, width, self.glyphs, self.filtered, by_role=self.order == "by role")
        if self.shown == "map":
            return MapTable(snapshot, width, self.glyphs)
        return view.GpuTable(snapshot, width, self.glyphs, self.shown == "wall")

    @override
    def head(self) -> Sequence[Line]:
        if self._snapshot is None:
            return ()
        table = self._rows()
        words: list[str] = [self.order] if self.order else []
        if isinstance(table, view.ChosenTable):
            words += [f"/{self.filtered} {table.num_cards}"] if self.filtered else []
        else:
            words.append(f"v {self._next}")
        head = view.head(self._snapshot, self.size.width, self.glyphs, words)
        return [head, table.under(self._cell(table))] if isinstance(table, MapTable) and table.num_nodes else [head]

    @property
    def room(self) -> int:
        """Rows that can be seen at once."""
        return max(1, self.size.height - (2 if self.shown == "map" else 1))

    @override
    def count(self) -> int:
        table = self._rows()
        return table.count if table is not None else 0

    @override
    def row(self, index: int) -> Line:
        assert self._table is not None, "count was asked before"
        table = self._table[1]
        return table.row(index, self._cell(table)) if isinstance(table, MapTable) else table.row(index)

    def empty(self) -> Sequence[Line]:
        """What stands there before the first sample."""
        if self.filtered and self._snapshot is not None and self._snapshot.hosts:
            return wrapped(
                f"no card has {self.filtered!r} in node, role, process or state", self.size.width, " ", "dim"
            )
        words = "no sampler has spoken yet: nodes appear when the run is placed"
        if self._snapshot is not None and self._snapshot.summary.is_adopted:
            words = "nothing of rltui runs beside an adopted job; :gpus --sample 60 samples its nodes for an hour"
        elif self._snapshot is not None and not self._snapshot.summary.is_live:
            words = "this attempt ended before a sampler spoke"
        return wrapped(words, self.size.width, " ", "dim")
