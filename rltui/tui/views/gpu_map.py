"""The tab of GPUs as a map of many nodes: one mark a node, of its worst card. Pure functions; only rows in sight."""

from __future__ import annotations

from collections.abc import Iterator

from rltui.tui import formats
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import Line, Role, Span, cut, joined, line
from rltui.watch.card_faults import ecc_words, held_words, xids_by_card
from rltui.watch.node_samples import GpuSample, HostSnapshot
from rltui.watch.owners import ROLE_NAMES, owners_of
from rltui.watch.silence import silent_nodes
from rltui.watch.snapshots import RunSnapshot

SLOWED, FAULTY, LOST = 1000.0, 2000.0, 3000.0
"""By how much a card that is held back, has errors of memory or does not answer is worse than an idle one."""


class MapTable:
    """Marks of all nodes in rows.

    Args:
        snapshot: The run.
        width: Cells of a row.
        glyphs: The alphabet.
    """

    def __init__(self, snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> None:
        self._hosts = snapshot.hosts
        self._known = owners_of(snapshot.actors, snapshot.role_patterns)
        self._xids = xids_by_card(snapshot)
        self._broken = {node for node, _ in self._xids}
        self._slow = dict(snapshot.stragglers)
        self._silent = silent_nodes(snapshot)
        self._glyphs = glyphs
        self._width = width
        self.columns = max(1, width - 2)
        """Nodes of a row."""
        self.num_nodes = len(self._hosts)

    @property
    def count(self) -> int:
        """Rows of the map, in which several nodes stand side by side."""
        return -(-self.num_nodes // self.columns)

    def node(self, index: int) -> str:
        """The node at a place of the map."""
        return self._hosts[index].host

    def place(self, node: str) -> int:
        """Where a node is on the map; the first place where it is not."""
        return next((index for index, host in enumerate(self._hosts) if host.host == node), 0)

    def row(self, index: int, cursor: int) -> Line:
        """One row of marks, that of the node at ``cursor`` reversed."""
        first = index * self.columns
        marks = [self._mark(host) for host in self._hosts[first : first + self.columns]]
        if first <= cursor < first + len(marks):
            marks[cursor - first] = (marks[cursor - first][0], "match")
        return line((" ", "text"), *joined(marks))

    def _mark(self, host: HostSnapshot) -> Span:
        worst, badness = worst_card(host)
        if host.host in self._silent or host.host in self._broken or badness >= FAULTY:
            return self._glyphs.attention, "bad"
        if worst is None:
            return self._glyphs.free, "dim"
        blocks = self._glyphs.blocks
        block = blocks[min(len(blocks) - 1, int(worst.utilization_percent / 100 * len(blocks)))]
        return block, "attention" if badness >= SLOWED or host.host in self._slow else "bar"

    def under(self, index: int) -> Line:
        """The node at a place of the map in words: its worst card, whose it is, what is wrong with it."""
        host = self._hosts[index]
        spans: list[Span] = [(f" {host.host}", "title")]
        if host.host in self._silent:
            spans.append((f"  silent for {formats.duration(self._silent[host.host])}", "bad"))
        worst, badness = worst_card(host)
        if badness < SLOWED:
            worst = next((gpu for gpu in host.gpus if gpu.index == self._slow.get(host.host)), worst)
        worst = next((gpu for gpu in host.gpus if (host.host, gpu.index) in self._xids), worst)
        if worst is None:
            spans.append((f"  {len(host.gpus)} cards, no process on any", "dim"))
        else:
            spans += self._card(host, worst)
        spans.append((f"  {self._glyphs.enter} its cards", "dim"))
        return line(*cut(spans, self._width, self._glyphs.ellipsis))

    def _card(self, host: HostSnapshot, gpu: GpuSample) -> Iterator[Span]:
        owner = self._known.of(host, gpu.pids)
        role = ROLE_NAMES.get(owner.letter, "") or ("another process" if gpu.pids else "no process")
        yield f"  worst GPU{gpu.index}", "text"
        yield f" {role}", "text"
        yield f"  {gpu.utilization_percent:.0f}%", "text"
        yield f"  {formats.gib(gpu.memory_used_gib)}/{formats.gib(gpu.memory_total_gib)} GiB", "dim"
        for words, tone in self._faults(host, gpu):
            yield f"  {words}", tone

    def _faults(self, host: HostSnapshot, gpu: GpuSample) -> Iterator[tuple[str, Role]]:
        if xid := self._xids.get((host.host, gpu.index)):
            yield f"Xid {xid}", "bad"
        if not gpu.answers:
            yield "does not answer", "bad"
        if wrong := ecc_words(gpu):
            yield wrong, "bad"
        if gpu.index == self._slow.get(host.host):
            yield "straggler", "attention"
        if held := held_words(gpu):
            yield held, "attention"


def worst_card(host: HostSnapshot) -> tuple[GpuSample | None, float]:
    """The card of a node with a fault, else the least busy one that a process is on; and how bad it is."""
    worst, most = None, -1.0
    for gpu in host.gpus:
        badness = 100.0 - gpu.utilization_percent if gpu.pids else -1.0
        if not gpu.answers:
            badness = LOST
        elif gpu.ecc_uncorrected:
            badness = FAULTY
        elif gpu.held_back:
            badness = SLOWED
        if badness > most:
            worst, most = gpu, badness
    return worst, most
