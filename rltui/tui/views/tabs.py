"""The tabs of a run that scroll: head lines and all lines of each, from the snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rltui.tui import formats
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import Line, Span, clip, rule, wrapped
from rltui.tui.views import actors as actor_views
from rltui.tui.views import parts
from rltui.watch.owners import ActorSnapshot
from rltui.watch.snapshots import RunSnapshot


class ActorLine(NamedTuple):
    """A line of the list of actors."""

    line: Line
    actor: ActorSnapshot
    is_first: bool
    """Whether it is the actor's own; below it stands why the actor died."""


def actors_head(snapshot: RunSnapshot, width: int, glyphs: Glyphs, order: actor_views.Order = "") -> Sequence[Line]:
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
    return [*head, actor_views.actor_head(width, with_held=True)] if snapshot.actors else head


def actors(snapshot: RunSnapshot, width: int, glyphs: Glyphs, order: actor_views.Order = "") -> Sequence[ActorLine]:
    """All actors, by role and name or in another order."""
    hosts = {host.host: host for host in snapshot.hosts}
    went_well, patterns = _went_well(snapshot), snapshot.role_patterns
    return [
        ActorLine(row, actor, number == 0)
        for actor in actor_views.arranged(snapshot, order)
        for number, row in enumerate(
            actor_views.actor_rows(actor, width, glyphs, went_well, patterns, actor_views.held_by(hosts, actor))
        )
    ]


def _went_well(snapshot: RunSnapshot) -> bool:
    return snapshot.summary.state in ("finished", "cancelled")


def events_head(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Sequence[Line]:
    """How many events there are."""
    return [rule([("events", "title")], [(f"{len(snapshot.events)}, newest first", "dim")], width, glyphs)]


def events(snapshot: RunSnapshot, width: int, _: Glyphs) -> Sequence[Line]:
    """All events, the newest first, with the time since the first."""
    if not snapshot.events:
        return wrapped("nothing has happened yet", width, " ", "dim")
    first = float(snapshot.events[0].get("time", 0.0))
    return [row for event in reversed(snapshot.events) for row in parts.event_rows(event, first, width)]
