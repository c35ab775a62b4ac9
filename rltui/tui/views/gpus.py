"""The tab of GPUs: every node with its GPUs and processes, one line a node, or cards by role or by some words.

Only rows in sight are made.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from typing_extensions import override

from rltui.tui import braille, formats, progress
from rltui.tui.glyphs import Glyphs
from rltui.tui.picking import fits
from rltui.tui.spans import BLANK, Line, Span, clip, line, pad, rule, width_of
from rltui.tui.views import hosts as host_views
from rltui.watch.card_faults import ecc_words, held_words, unused_words, xids_by_card
from rltui.watch.node_samples import GpuSample, HostSnapshot, ProcessSample, RoleMemory
from rltui.watch.owners import ROLE_NAMES, Owners, owners_of
from rltui.watch.silence import silent_nodes
from rltui.watch.snapshots import RunSnapshot

Order = Literal["", "worst first", "by role"]
ORDERS: tuple[Order, ...] = ("", "worst first", "by role")
"""In which order cards can be shown; at first by the names of their nodes."""

RECENT_SAMPLES = 12
"""Samples of a card that say how busy it is: one moment of a step says little."""

IDLE_PERCENT = 5.0

OFF_BY = 0.15
"""Share by which a role may hold more than was estimated before that is pointed out: what estimates are good for."""

UNITS_FROM, CLOCKS_FROM, HISTORY_FROM, ECC_FROM = 44, 120, 120, 140
"""Widths from which the unit of memory, clocks, the latest load, and errors of memory have a column."""


def worst_first(snapshot: RunSnapshot) -> tuple[HostSnapshot, ...]:
    """Nodes that are silent, then those with a halted process, a card held back, a straggler, the least busy card."""
    silent, slow = silent_nodes(snapshot), {node for node, _ in snapshot.stragglers}

    def rank(host: HostSnapshot) -> tuple[bool, bool, bool, bool, float]:
        used = [recent_percent(host, place) for place, gpu in enumerate(host.gpus) if gpu.pids]
        halted = any(one.state for one in host.processes)
        held = any(gpu.held_back for gpu in host.gpus)
        return host.host not in silent, not halted, not held, host.host not in slow, min(used, default=100.0)

    return tuple(sorted(snapshot.hosts, key=rank))


def recent_percent(host: HostSnapshot, place: int) -> float:
    """Mean utilization of a card over its last samples, in percent."""
    recent = host.gpu_history[place][-RECENT_SAMPLES:] if place < len(host.gpu_history) else ()
    return sum(recent) / len(recent) if recent else host.gpus[place].utilization_percent


def is_idle(host: HostSnapshot, place: int) -> bool:
    """Whether a process holds memory of a card that has computed nothing for as long as ``RECENT_SAMPLES``."""
    known = place < len(host.gpu_history) and len(host.gpu_history[place]) >= RECENT_SAMPLES
    return known and bool(host.gpus[place].pids) and recent_percent(host, place) < IDLE_PERCENT


class GpuTable:
    """The rows of the tab for one picture of a run.

    Args:
        snapshot: The run.
        width: Cells of a row.
        glyphs: The alphabet.
        wall: One line a node, instead of every GPU and process.
    """

    def __init__(self, snapshot: RunSnapshot, width: int, glyphs: Glyphs, wall: bool) -> None:
        self._hosts = snapshot.hosts
        self._known = owners_of(snapshot.actors, snapshot.role_patterns)
        self._xids = xids_by_card(snapshot)
        self._slow = snapshot.stragglers
        self._width = width
        self._glyphs = glyphs
        self._wall = wall
        self._name_width, self._room = host_views.wall_widths(snapshot.hosts, width)
        sizes = [] if wall else [1 + len(host.gpus) + _num_others(host) + 1 for host in snapshot.hosts]
        self._ends = list(accumulate(sizes))
        self._others: dict[int, list[ProcessSample]] = {}

    @property
    def count(self) -> int:
        """Rows of the table: a card each, or on the wall a node each."""
        return len(self._hosts) if self._wall else max(0, (self._ends[-1] if self._ends else 0) - 1)

    def node(self, index: int) -> str:
        """The node that a row is of."""
        return self._hosts[index if self._wall else bisect_right(self._ends, index)].host

    def first_row(self, node: str) -> int:
        """The row that a node begins at; the first where it is not there."""
        place = next((index for index, host in enumerate(self._hosts) if host.host == node), 0)
        return place if self._wall or not place else self._ends[place - 1]

    def row(self, index: int) -> Line:
        """The row of a card, or on the wall of a node, drawn when it comes into view."""
        if self._wall:
            return self._wall_row(self._hosts[index])
        place = bisect_right(self._ends, index)
        host = self._hosts[place]
        inside = index - (self._ends[place - 1] if place else 0)
        if inside == 0:
            return host_views.host_row(host, self._name_width, self._width, self._glyphs)
        if inside <= len(host.gpus):
            return self.gpu_row(host, inside - 1)
        if place not in self._others:
            self._others[place] = _others(host, self._known)
        others = self._others[place]
        inside -= 1 + len(host.gpus)
        if inside < len(others):
            return host_views.process_row(others[inside], host, self._known, self._width, self._glyphs)
        return BLANK

    def _wall_row(self, host: HostSnapshot) -> Line:
        if host.gpus:
            return host_views.wall_row(host, self._known, self._name_width, self._room, self._glyphs)
        return host_views.host_row(host, self._name_width, self._width, self._glyphs)

    def gpu_row(self, host: HostSnapshot, index: int, name_width: int = 0) -> Line:
        """One card; with ``name_width``, its node's name stands before it."""
        gpu, width, glyphs = host.gpus[index], self._width, self._glyphs
        owner = self._known.of(host, gpu.pids)
        spans: list[Span] = [
            (f" {pad(host.host, name_width)}" if name_width else "", "dim"),
            (f"   {owner.letter or glyphs.free} ", "text" if owner.letter else "dim"),
            (f"GPU{gpu.index:<3}", "dim"),
        ]
        spans += host_views.meter(gpu.utilization_percent / 100, 10 if width < 100 else 16, glyphs)
        spans.append((f"{gpu.utilization_percent:4.0f}%", "text"))
        unit = " GiB" if width >= UNITS_FROM else ""
        memory = f"  {formats.gib(gpu.memory_used_gib):>4}/{formats.gib(gpu.memory_total_gib)}{unit}"
        spans.append((memory, "attention" if host_views.is_tight(gpu) else "text"))
        spans.append((f"  {gpu.power_w:4.0f} W" if gpu.power_w is not None else "        ", "dim"))
        heat = f"  {gpu.temperature_c:3.0f} °C" if gpu.temperature_c is not None else "        "
        spans.append((heat, "attention" if gpu.held_back else "dim"))
        if width >= CLOCKS_FROM:
            clock = f"  {gpu.clock_mhz:4.0f} MHz" if gpu.clock_mhz is not None else " " * 10
            spans.append((clock, "attention" if gpu.held_back else "dim"))
        if width >= ECC_FROM:
            errors = gpu.ecc_uncorrected
            spans.append((f"  ECC {errors:<2}" if errors is not None else " " * 8, "bad" if errors else "dim"))
        has_room = width >= HISTORY_FROM + name_width and index < len(host.gpu_history)
        history = host.gpu_history[index] if has_room and gpu.answers else ()
        spans.append(("".join(f"  {word}" for word in self.marks(host, index)), "attention"))
        room = width - width_of(spans) - (27 if history else 0)
        spans.append(
            (pad(f"  {clip(self._process(host, gpu), max(0, room - 2), glyphs.ellipsis)}", max(0, room)), "text")
        )
        if history:
            spans.append((" " + braille.sparkline(history, 24, glyphs, high=100.0), "bar"))
        return line(*spans)

    def marks(self, host: HostSnapshot, index: int) -> tuple[str, ...]:
        """What a card is besides its numbers: it holds memory and rests, or its peers wait for it."""
        idle = ("idle",) if is_idle(host, index) else ()
        return (*idle, "straggler") if (host.host, host.gpus[index].index) in self._slow else idle

    def _process(self, host: HostSnapshot, gpu: GpuSample) -> str:
        """What runs on a GPU: the actor's name with its process id, or the process's title; first what slows it."""
        held = "".join(f"{words}  " for words in (ecc_words(gpu), held_words(gpu)) if words)
        xid = self._xids.get((host.host, gpu.index), "")
        if not gpu.pids:
            return held + unused_words(gpu, xid)
        return held + (f"Xid {xid}  " if xid else "") + self._runs(host, gpu)

    def _runs(self, host: HostSnapshot, gpu: GpuSample) -> str:
        owner = self._known.of(host, gpu.pids)
        shown = next((one for one in host.processes if one.pid in gpu.pids), None)
        title = owner.name or (shown.title if shown else "another process")
        pid = owner.pid or (shown.pid if shown else gpu.pids[0])
        more = f" +{len(gpu.pids) - 1}" if len(gpu.pids) > 1 else ""
        return f"{title}  {pid}{more}"


def _num_others(host: HostSnapshot) -> int:
    """How many these are; asked of each of a thousand nodes at each picture."""
    return len({one.pid for one in host.processes}.difference(*[gpu.pids for gpu in host.gpus]))


def _others(host: HostSnapshot, known: Owners) -> list[ProcessSample]:
    """Processes that are on no GPU: halted ones, those of roles, then the largest; Ray has a score of small ones."""
    on_gpus = {pid for gpu in host.gpus for pid in gpu.pids}
    rest = [one for one in host.processes if one.pid not in on_gpus]
    return sorted(
        rest, key=lambda one: (not one.state, not known.of(host, (one.pid,)).letter, -one.resident_gib, one.pid)
    )


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
        self._rows: list[GpuOfRole | Line] = self._grouped(chosen) if by_role else [*chosen, BLANK]

    @property
    @override
    def count(self) -> int:
        return max(0, len(self._rows) - 1)

    def node(self, index: int) -> str:
        """The node that a row is of; of a role's row its first card's."""
        return next((row.host.host for row in self._rows[index:] if isinstance(row, GpuOfRole)), "")

    @override
    def row(self, index: int) -> Line:
        row = self._rows[index]
        return self.gpu_row(row.host, row.place, self._name_width) if isinstance(row, GpuOfRole) else row

    def _words(self, card: GpuOfRole) -> str:
        marks = " ".join(self.marks(card.host, card.place))
        role = ROLE_NAMES.get(card.letter, "free")
        return f"{card.host.host} gpu{card.gpu.index} {role} {self._process(card.host, card.gpu)} {marks}"

    def _grouped(self, cards: Sequence[GpuOfRole]) -> list[GpuOfRole | Line]:
        rows: list[GpuOfRole | Line] = []
        for letter in (*ROLE_NAMES, ""):
            own = [card for card in cards if card.letter == letter]
            if own:
                rows += [role_row(own, self._memory.get(letter), self._width, self._glyphs), *own, BLANK]
        return rows


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


def head(snapshot: RunSnapshot, width: int, glyphs: Glyphs, more: Sequence[str]) -> Line:
    """How many GPUs and nodes there are, how busy, and ``more``: in which order, and what a key would show."""
    cards = [gpu for host in snapshot.hosts for gpu in host.gpus]
    busy = [gpu.utilization_percent for gpu in cards if gpu.pids]
    nodes = len(snapshot.hosts)
    left: list[Span] = [("GPUs " if cards else "hosts", "title")]
    if cards:
        known = owners_of(snapshot.actors, snapshot.role_patterns)
        left += [(str(len(cards)), "text"), (host_views.legend(known), "dim")]
    words = [f"{nodes} node{'' if nodes == 1 else 's'}"]
    quiet = host_views.silence(snapshot)
    if busy and not quiet:
        words += [f"median {progress.middle(busy):.0f}%", f"least {min(busy):.0f}%"]
    words += more
    return rule(left, [(quiet, "attention"), ("  ".join(words), "dim")], width, glyphs)
