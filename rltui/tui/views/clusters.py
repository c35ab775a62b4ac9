"""The clusters: where each is, whether it answers, and what it waits for. Pure functions."""

from __future__ import annotations

from rltui.service.cockpit import ClusterSummary
from rltui.tui import formats
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import BLANK, Line, Span, clip, cut, line, pad, wrapped


def cluster_head(width: int) -> Line:
    """Titles of the columns, above the clusters."""
    return line((clip(f"  {pad('CLUSTER', 16)} {pad('RUNS', 5, right=True)}  {pad('WITH', 6)} STATE", width), "dim"))


def cluster_row(cluster: ClusterSummary, num_runs: int, now: float, width: int, selected: bool, glyphs: Glyphs) -> Line:
    """A cluster with the number of its runs, its place and how it can be reached."""
    state = cluster_state(cluster, now, glyphs)
    place = cluster.place or cluster.summary
    spans: list[Span] = [
        (f"{glyphs.cursor if selected else ' '} ", "accent"),
        (pad(cluster.name, 16), "text"),
        (f" {num_runs:>5}", "dim"),
        (f"  {pad(cluster.scheduler, 6)} ", "dim"),
        state,
    ]
    if not cluster.problem and place:
        spans.append((f"  {clip(place, max(0, width - 50))}", "dim"))
    return Line(cut(spans, width, glyphs.ellipsis), selected)


def cluster_reason(cluster: ClusterSummary, width: int) -> list[Line]:
    """Why a cluster does not answer, in full; its row may have no room for that."""
    return [BLANK, *wrapped(cluster.problem, width, "  ", "text")] if cluster.problem else []


def cluster_state(cluster: ClusterSummary, now: float, glyphs: Glyphs) -> Span:
    """How a cluster is, in a few words."""
    problem = cluster.problem.removeprefix(f"{cluster.name}: ")
    if cluster.needs_attention:
        return (f"{glyphs.attention} needs you: {problem}", "attention")
    if cluster.problem:
        since = f" for {formats.duration(now - cluster.answered_at)}" if cluster.answered_at else ""
        return (f"{glyphs.failed} away{since}: {problem}", "bad")
    return (f"{glyphs.done} answers", "ok") if cluster.answered_at else (f"{glyphs.dot} not asked yet", "dim")


def stale_words(cluster: ClusterSummary, now: float, glyphs: Glyphs) -> Span:
    """What the header says of a cluster that is away."""
    if cluster.needs_attention:
        return (f"  {glyphs.attention} {cluster.name} needs you: a", "attention")
    since = f"stale {formats.duration(now - cluster.answered_at)}" if cluster.answered_at else "away: C"
    return (f"  {glyphs.attention} {cluster.name} {since}", "attention")
