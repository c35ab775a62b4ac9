"""The tabs of a run that scroll: head lines and all lines of each, from the snapshot."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rltui.tui import formats
from rltui.tui.spans import Line, clip, rule, wrapped
from rltui.tui.views import actors as actor_views
from rltui.tui.views import parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.tui.glyphs import Glyphs
    from rltui.tui.spans import Span
    from rltui.watch.snapshots import RunSnapshot


def actors_head(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Sequence[Line]:
    """How many actors are in each state."""
    states = Counter(actor.state.lower().replace("_", " ") for actor in snapshot.actors)
    right: list[Span] = [("  ".join(f"{count} {state}" for state, count in sorted(states.items())), "dim")]
    if snapshot.actors_noted_at:
        right.append((f"  {formats.ago(snapshot.taken_at - snapshot.actors_noted_at)}", "dim"))
    if snapshot.actors_problem:
        right = [(clip(snapshot.actors_problem, width // 2), "attention")]
    head = rule([("actors", "title")], right, width, glyphs)
    return [head, actor_views.actor_head(width, with_held=True)] if snapshot.actors else [head]


def actors(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Sequence[Line]:
    """All actors, by role and name."""
    if not snapshot.actors:
        return wrapped("no actors: they appear when Ray is up, and go with it", width, " ", "dim")
    hosts = {host.host: host for host in snapshot.hosts}
    went_well, patterns = snapshot.summary.state in ("finished", "cancelled"), snapshot.role_patterns
    rows = [
        row
        for actor in actor_views.in_order(snapshot.actors, patterns)
        for row in actor_views.actor_rows(actor, width, glyphs, went_well, patterns, actor_views.held_by(hosts, actor))
    ]
    return [*wrapped("the run has ended, and its actors with it", width, " ", "dim"), *rows] if went_well else rows


def events_head(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Sequence[Line]:
    """How many events there are."""
    return [rule([("events", "title")], [(f"{len(snapshot.events)}, newest first", "dim")], width, glyphs)]


def events(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Sequence[Line]:
    """All events, the newest first, with the time since the first."""
    if not snapshot.events:
        return wrapped("nothing has happened yet", width, " ", "dim")
    first = float(snapshot.events[0].get("time", 0.0))
    return [parts.event_row(event, first, width, glyphs) for event in reversed(snapshot.events)]
