"""The clusters: which answer, which are away, and which need somebody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import override

from rltui.service.cockpit import ClusterSummary
from rltui.tui import messages
from rltui.tui.keys import Key, KeyContext, KeyTable, key_table, needs_question
from rltui.tui.messages import CockpitMessage
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.spans import Line, line
from rltui.tui.views import clusters as view
from rltui.tui.widgets.list_pane import ItemsPane


class ClusterList(ItemsPane[ClusterSummary]):
    """The clusters, one a line, with their runs and how they can be reached."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._counts: dict[str, int] = {}
        self._now = 0.0

    def show(self, clusters: tuple[ClusterSummary, ...], counts: dict[str, int], now: float) -> None:
        """Show these, with the number of runs of each."""
        self._counts, self._now = counts, now
        self.put(clusters)

    @override
    def key_of(self, item: ClusterSummary) -> str:
        return item.name

    @override
    def head(self) -> Sequence[Line]:
        return [view.cluster_head(self.size.width)]

    @override
    def row(self, index: int) -> Line:
        cluster = self.items[index]
        return view.cluster_row(
            cluster, self._counts.get(cluster.name, 0), self._now, self.size.width, self.is_selected(index), self.glyphs
        )

    def build(self) -> Sequence[Line]:
        """Below the rows why the cluster under the cursor is away, where there is room."""
        reason = view.cluster_reason(self.selected, self.size.width) if self.selected is not None else []
        return [*super().build(), *reason]

    def empty(self) -> Sequence[Line]:
        """What stands there before the first answer."""
        return [line((f" reading the profiles {self.glyphs.ellipsis}", "dim"))]


KEYS = key_table(
    "clusters",
    Key("answer", ("a", "enter"), "answer", "Answer what the cluster asks for.", 1, needs_question),
    Key("queue", ("Q",), "queue", "Its queue: who waits, who holds what, free GPUs.", 3),
    Key("copy", ("y",), "copy", "Copy why the cluster is away.", 2),
)


class ClustersScreen(CockpitScreen, inherit_bindings=False):
    """All clusters of the user's profiles."""

    KEYS: ClassVar[KeyTable] = KEYS

    pane: ClusterList

    def __init__(self) -> None:
        super().__init__()
        self.pane = ClusterList(id="clusters")

    def catch_up(self) -> None:
        """Show how they are now."""
        pictures = self.cockpit.pictures
        counts: dict[str, int] = {}
        for run in pictures.runs.runs:
            counts[run.cluster] = counts.get(run.cluster, 0) + 1
        self.pane.show(pictures.clusters, counts, self.cockpit.wall_clock())

    @override
    def tick(self) -> None:
        if self.on_top:
            self.catch_up()
        super().tick()

    @override
    def receive(self, message: CockpitMessage) -> None:
        if isinstance(message, messages.ClustersFetched | messages.RunsFetched):
            self.catch_up()
            self.tick()

    @override
    def crumbs(self) -> Sequence[str]:
        return ["clusters"]

    def key_context(self) -> KeyContext:
        """The cluster under the cursor decides."""
        cluster = self.pane.selected
        return KeyContext(readonly=self.cockpit.readonly, needs_you=cluster is not None and cluster.needs_attention)

    def do_answer(self) -> None:
        """Answer what the cluster asks for."""
        if self.pane.selected is not None:
            self.cockpit.controller.connect(self.pane.selected.name)

    def do_queue(self) -> None:
        """Open the queue of the selected cluster."""
        if self.pane.selected is not None:
            self.cockpit.open("queue", self.pane.selected.name)

    def do_copy(self) -> None:
        """Copy why the cluster is away."""
        cluster = self.pane.selected
        if cluster is not None:
            self.cockpit.copy(cluster.problem or cluster.name, "cluster")
