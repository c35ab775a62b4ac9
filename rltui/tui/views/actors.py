"""Ray's actors: counts, columns, why one died, and the tab of all of them. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Literal, NamedTuple

from msgspec import structs

from rltui.tui import formats
from rltui.tui.compose import Section
from rltui.tui.glyphs import Glyphs
from rltui.tui.picking import fits
from rltui.tui.spans import Line, Span, clip, clip_middle, line, pad, rule, wrapped
from rltui.tui.states import actor_look
from rltui.watch.node_samples import HostSnapshot
from rltui.watch.owners import OUR_PATTERNS, ROLE_NAMES, ActorSnapshot, Patterns, actor_letter, ancestors, of_newest
from rltui.watch.silence import STOPPED
from rltui.watch.snapshots import LogFile, RunSnapshot

RESTARTS_FROM, NODE_FROM = 64, 56
"""Cells from which the list of actors has columns of restarts and of nodes."""

HELD_FROM = 92
"""Cells from which the list has what each actor's process holds."""


HELD_CELLS = 26

Order = Literal["", "worst first", "most memory", "by node"]
ORDERS: tuple[Order, ...] = ("", "worst first", "most memory", "by node")
"""In which order actors can be listed; at first by role, class and name."""


class Held(NamedTuple):
    """What the process of an actor holds."""

    gpus: tuple[int, ...] = ()
    gpu_gib: float = 0.0
    """All of these cards' memory in use, its own or not: the driver tells no more to everybody."""
    resident_gib: float | None = None
    is_stopped: bool = False
    """Whether its node saw the process stopped; Ray calls its actor alive."""


def held_by(hosts: Mapping[str, HostSnapshot], actor: ActorSnapshot) -> Held:
    """What an actor holds, by its process and those that it started; nothing where no sampler knows the process."""
    host = hosts.get(actor.node) or hosts.get(actor.node.split(".")[0])
    if host is None:
        return Held()
    cards = [
        gpu for gpu in host.gpus if actor.pid and any(actor.pid in (pid, *ancestors(host, pid)) for pid in gpu.pids)
    ]
    own = next((one for one in host.processes if one.pid == actor.pid), None)
    return Held(
        gpus=tuple(gpu.index for gpu in cards),
        gpu_gib=sum(gpu.memory_used_gib for gpu in cards),
        resident_gib=own.resident_gib if own is not None else None,
        is_stopped=own is not None and own.state in STOPPED,
    )


def fitting(snapshot: RunSnapshot, words: str) -> RunSnapshot:
    """``snapshot`` with only those actors that have every word in class, name, state, node or process."""

    def text(actor: ActorSnapshot) -> str:
        return f"{actor.class_name} {actor.name} {actor.state} {actor.node} {actor.pid}"

    return structs.replace(snapshot, actors=tuple(actor for actor in snapshot.actors if fits(text(actor), words)))


_ROLE_ORDER = [*ROLE_NAMES, ""]
# A run of 1,000 nodes has thousands of actors: these take a third of what a generator does.
_CLASS_AND_STATE, _RESTARTS, _DEATH_CAUSE = (
    attrgetter("class_name", "state"),
    attrgetter("restarts"),
    attrgetter("death_cause"),
)


class _Counts(NamedTuple):
    """How many actors there are: by role and class, in all and alive; dead, with a reason; and their restarts."""

    classes: tuple[tuple[str, int, int], ...]
    dead: int
    reasons: int
    restarts: int


@of_newest
def _counted(actors: Sequence[ActorSnapshot], patterns: Patterns) -> _Counts:
    states = Counter(map(_CLASS_AND_STATE, actors))
    totals: Counter[str] = Counter()
    for (name, _), count in states.items():
        totals[name] += count
    first = {actor.class_name: actor for actor in actors}
    places = {name: _ROLE_ORDER.index(actor_letter(actor, patterns)) for name, actor in first.items()}
    return _Counts(
        tuple((name, totals[name], states[name, "ALIVE"]) for name in sorted(totals, key=lambda n: (places[n], n))),
        sum([count for (_, state), count in states.items() if state == "DEAD"]),
        sum(map(bool, map(_DEATH_CAUSE, actors))),
        sum(map(_RESTARTS, actors)),
    )


def actor_counts(
    actors: Sequence[ActorSnapshot], with_restarts: bool = True, patterns: Patterns = OUR_PATTERNS
) -> Line:
    """Alive of all, for each class, and restarts."""
    counts = _counted(actors, patterns)
    spans: list[Span] = []
    for name, total, alive in counts.classes:
        spans += [
            (f" {clip(name, 28)} ", "dim"),
            (f"{alive}/{total} alive", "text" if alive == total else "attention"),
        ]
        spans.append((" ", "text"))
    restarts = counts.restarts
    if not with_restarts and not restarts:
        return line(*spans)
    return line(*spans, (" restarts ", "dim"), (str(restarts), "attention" if restarts else "text"))


@of_newest
def in_order(actors: Sequence[ActorSnapshot], patterns: Patterns) -> Sequence[ActorSnapshot]:
    """Actors by role, class and name, where ``engine 2`` comes before ``engine 10``."""

    def place(actor: ActorSnapshot) -> tuple[int, str, int, str]:
        return _ROLE_ORDER.index(actor_letter(actor, patterns)), actor.class_name, len(actor.name), actor.name

    return sorted(actors, key=place)


def arranged(snapshot: RunSnapshot, order: Order) -> Sequence[ActorSnapshot]:
    """The actors of a run in one of ``ORDERS``; those that are alike in it by role, class and name."""
    actors = in_order(snapshot.actors, snapshot.role_patterns)
    if order == "worst first":
        return sorted(actors, key=lambda one: (one.state == "ALIVE", one.state != "DEAD", -one.restarts))
    if order == "most memory":
        hosts = {host.host: host for host in snapshot.hosts}
        held = {one.actor_id: held_by(hosts, one) for one in actors}
        return sorted(actors, key=lambda one: _memory(held[one.actor_id]), reverse=True)
    return sorted(actors, key=lambda one: one.node) if order else actors


def _memory(held: Held) -> tuple[float, float]:
    return held.gpu_gib, held.resident_gib or 0.0


def own_log(actor: ActorSnapshot, logs: Sequence[LogFile]) -> str:
    """The log that Ray keeps of an actor's process, the larger of its two; empty where the attempt has none of it.

    Ray calls them ``worker-<worker>-<job>-<pid>.out`` and ``.err``; process ids repeat from node to node.
    """
    ends = (f"-{actor.pid}.out", f"-{actor.pid}.err")
    node = actor.node.split(".")[0]
    own = [one for one in logs if one.name.endswith(ends) and one.node.split(".")[0] in ("", node)]
    return max(own, key=lambda one: one.size).name if own and actor.pid else ""


def actor_head(width: int, with_held: bool = False) -> Line:
    """Titles of the columns of :func:`actor_row`."""
    if with_held and width >= HELD_FROM:
        head = actor_head(width - HELD_CELLS)
        return Line((*head.spans, (f" {'GPU':>7} {'MEM GIB':>8} {'RSS GIB':>8}", "dim")))
    node = f" {pad('NODE', 12)}" if width >= NODE_FROM else ""
    restarts = " RESTARTS" if width >= RESTARTS_FROM else ""
    return line((f"   {pad('ACTOR', _actor_name(width))} {'STATE':<11}{node} {'PID':>8}{restarts}", "dim"))


def _actor_name(width: int) -> int:
    others = 24 + 13 * (width >= NODE_FROM) + 9 * (width >= RESTARTS_FROM)
    return max(10, min(40, width - others))


def actor_row(
    actor: ActorSnapshot,
    width: int,
    glyphs: Glyphs,
    ended: bool = False,
    patterns: Patterns = OUR_PATTERNS,
    held: Held | None = None,
) -> Line:
    """One actor: role, class and name, state, node, process, restarts; of an ended run nothing of it is alarming."""
    if with_held := held is not None and width >= HELD_FROM:
        width -= HELD_CELLS
    is_stopped = held is not None and held.is_stopped and actor.state == "ALIVE" and not ended
    look = actor_look("STOPPED" if is_stopped else actor.state)
    label = f"{actor.class_name} {actor.name}" if actor.name and actor.name != actor.class_name else actor.class_name
    letter = actor_letter(actor, patterns) or glyphs.dot
    state = f"{look.sign(glyphs)} {look.word}"
    name_width = _actor_name(width)
    spans: list[Span] = [
        (f" {letter} ", "text"),
        (pad(clip_middle(label, name_width, glyphs.ellipsis), name_width), "text"),
        (f" {pad(state, 11)}", "dim" if ended else look.role),
        (f" {pad(clip_middle(actor.node, 12, glyphs.ellipsis), 12)}" if width >= NODE_FROM else "", "dim"),
        (f" {actor.pid or formats.MISSING:>8}", "dim"),
    ]
    if width >= RESTARTS_FROM:
        spans.append((f" {actor.restarts:>8}", "attention" if actor.restarts else "dim"))
    if with_held and held is not None:
        cards = ",".join(map(str, held.gpus)) or formats.MISSING
        memory = f"{held.gpu_gib:.1f}" if held.gpus else formats.MISSING
        resident = formats.MISSING if held.resident_gib is None else f"{held.resident_gib:.1f}"
        spans.append((f" {clip(cards, 7, glyphs.ellipsis):>7} {memory:>8} {resident:>8}", "text"))
    return line(*spans)


def actor_rows(
    actor: ActorSnapshot,
    width: int,
    glyphs: Glyphs,
    ended: bool = False,
    patterns: Patterns = OUR_PATTERNS,
    held: Held | None = None,
) -> list[Line]:
    """One actor, and below it why it died."""
    rows = [actor_row(actor, width, glyphs, ended, patterns, held)]
    if actor.death_cause and not ended:
        rows.append(line((f"     {clip(actor.death_cause, max(0, width - 5), glyphs.ellipsis)}", "bad")))
    return rows


def actor_section(snapshot: RunSnapshot, glyphs: Glyphs) -> Section:
    """Actors: the list, or a line of counts where there is no room for it."""
    actors, patterns = snapshot.actors, snapshot.role_patterns
    counts = _counted(actors, patterns)
    alive = sum(count for _, _, count in counts.classes)
    counted = f"{alive} alive" if alive == len(actors) else f"{alive}/{len(actors)} alive"
    right: tuple[Span, ...] = ((f"{counts.dead} dead", "bad"),) if counts.dead else ((counted, "dim"),)
    if snapshot.actors_problem:
        right = ((clip(snapshot.actors_problem, 40), "attention"),)

    def body(width: int, height: int) -> list[Line]:
        if height < 3:
            return [actor_counts(actors, patterns=patterns)]
        worst_first = sorted(in_order(actors, patterns), key=lambda actor: actor.state == "ALIVE")
        kept = rows if 1 + rows <= height else height - 2
        shown = [row for actor in worst_first[:kept] for row in actor_rows(actor, width, glyphs, patterns=patterns)]
        more = [line((f" {glyphs.ellipsis} {rows - kept} more", "dim"))] if rows > kept else []
        return [actor_head(width), *shown[:kept], *more]

    rows = len(actors) + counts.reasons
    wanted = rows + 1 if actors else 0
    return Section((("actors", "title"),), right, body, least=1, wanted=wanted, rank=2)


class ActorLine(NamedTuple):
    """A line of the list of actors."""

    line: Line
    actor: ActorSnapshot
    is_first: bool
    """Whether it is the actor's own; below it stands why the actor died."""


def tab_head(snapshot: RunSnapshot, width: int, glyphs: Glyphs, order: Order = "") -> Sequence[Line]:
    """How many actors are in each state, and in which order they stand."""
    states = Counter(actor.state.lower().replace("_", " ") for actor in snapshot.actors)
    words = [*([order] if order else []), *(f"{count} {state}" for state, count in sorted(states.items()))]
    right: list[Span] = [("  ".join(words), "dim")]
    if snapshot.actors_noted_at:
        right.append((f"  {formats.ago(snapshot.taken_at - snapshot.actors_noted_at)}", "dim"))
    if snapshot.actors_problem:
        right = [(clip(snapshot.actors_problem, width // 2), "attention")]
    head = [rule([("actors", "title")], right, width, glyphs)]
    if _went_well(snapshot) and snapshot.actors:
        head += wrapped("the run has ended, and its actors with it", width, " ", "dim")
    return [*head, actor_head(width, with_held=True)] if snapshot.actors else head


def tab(snapshot: RunSnapshot, width: int, glyphs: Glyphs, order: Order = "") -> Sequence[ActorLine]:
    """All actors, by role and name or in another order."""
    hosts = {host.host: host for host in snapshot.hosts}
    went_well, patterns = _went_well(snapshot), snapshot.role_patterns
    return [
        ActorLine(row, actor, number == 0)
        for actor in arranged(snapshot, order)
        for number, row in enumerate(actor_rows(actor, width, glyphs, went_well, patterns, held_by(hosts, actor)))
    ]


def _went_well(snapshot: RunSnapshot) -> bool:
    return snapshot.summary.state in ("finished", "cancelled")
