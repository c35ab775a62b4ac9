"""The tab of GPUs by role, or only those cards that fit some words: a role's row above its cards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from typing_extensions import override

from rltui.tui import progress
from rltui.tui.glyphs import Glyphs
from rltui.tui.picking import fits
from rltui.tui.spans import BLANK, Line, Span, clip, line, width_of
from rltui.tui.views.gpus import GpuTable
from rltui.watch.node_samples import GpuSample, HostSnapshot, RoleMemory
from rltui.watch.owners import ROLE_NAMES
from rltui.watch.snapshots import RunSnapshot

OFF_BY = 0.15
"""Share by which a role may hold more than was estimated before that is pointed out: what estimates are good for."""


class GpuOfRole(NamedTuple):
    """One card of one node."""

    host: HostSnapshot
    place: int
    letter: str

    @property
    def gpu(self) -> GpuSample:
        """The card's newest sample."""
        return self.host.gpus[self.place]


class ChosenTable(GpuTable):
    """Rows of the cards that fit some words, below the row of their role or of their node.

    Args:
        snapshot: The run.
        width: Cells of a row.
        glyphs: The alphabet.
        words: Words that all must occur in a card's node, role, process or state.
        by_role: Below the row of their role.
    """

    def __init__(self, snapshot: RunSnapshot, width: int, glyphs: Glyphs, words: str, by_role: bool) -> None:
        super().__init__(snapshot, width, glyphs, wall=False)
        self._memory = {one.letter: one for one in snapshot.role_memory}
        cards = [
            GpuOfRole(host, place, self._known.of(host, gpu.pids).letter)
            for host in snapshot.hosts
            for place, gpu in enumerate(host.gpus)
        ]
        chosen = [card for card in cards if fits(self._words(card), words)] if words else cards
        self.num_cards = len(chosen)
        self._rows = self._grouped(chosen) if by_role else self._by_node(chosen)

    @property
    @override
    def count(self) -> int:
        return max(0, len(self._rows) - 1)

    def node(self, index: int) -> str:
        """The node that a row is of; of a role's row its first card's."""
        return next((one.host.host for one in map(_card_of, self._rows[index:]) if one is not None), "")

    @override
    def row(self, index: int) -> Line:
        row = self._rows[index]
        return self.gpu_row(row.host, row.place, self._name_width) if isinstance(row, GpuOfRole) else row

    def _words(self, card: GpuOfRole) -> str:
        marks = " ".join(self.marks(card.host, card.place))
        role = ROLE_NAMES.get(card.letter, "free")
        return f"{card.host.host} gpu{card.gpu.index} {role} {self._process(card.host, card.gpu)} {marks}"

    def _by_node(self, cards: Sequence[GpuOfRole]) -> list[GpuOfRole | Line]:
        return [*cards, BLANK]

    def _grouped(self, cards: Sequence[GpuOfRole]) -> list[GpuOfRole | Line]:
        rows: list[GpuOfRole | Line] = []
        for letter in (*ROLE_NAMES, ""):
            own = [card for card in cards if card.letter == letter]
            if own:
                rows += [role_row(own, self._memory.get(letter), self._width, self._glyphs), *own, BLANK]
        return rows


def _card_of(row: GpuOfRole | Line) -> GpuOfRole | None:
    return row if isinstance(row, GpuOfRole) else None


def role_row(cards: Sequence[GpuOfRole], memory: RoleMemory | None, width: int, glyphs: Glyphs) -> Line:
    """A role: how many cards on how many nodes, how busy, and the most that one held against what was estimated."""
    nodes = len({card.host.host for card in cards})
    most = max(cards, key=lambda card: card.gpu.memory_peak_gib)
    held = most.gpu.memory_peak_gib
    median = progress.middle([card.gpu.utilization_percent for card in cards])
    spans: list[Span] = [
        (f" {cards[0].letter or glyphs.free} {ROLE_NAMES.get(cards[0].letter, 'no role of the run')}", "title"),
        (f"  {len(cards)} on {nodes} node{'s' * (nodes != 1)}  median {median:.0f}%", "text"),
    ]
    if memory is not None:
        over = held > (1 + OFF_BY) * memory.estimated_gib
        spans.append(
            (
                f"  held {held:.1f} of {memory.estimated_gib:.1f} GiB estimated",
                "attention" if over else "text",
            )
        )
        tail = f"  at {memory.moment}; {most.host.host} GPU{most.gpu.index}"
    else:
        tail = f"  held at most {held:.1f} GiB"
    spans.append((clip(tail, max(0, width - width_of(spans)), glyphs.ellipsis), "dim"))
    return line(*spans)
