"""The logs of a run's newest attempt as one stream: which take part, a piece of them, what is found in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rltui.cluster.relay_client import RelayClient
from rltui.errors import UsageError
from rltui.onnode import rundir
from rltui.runs.claims import if_there
from rltui.service.describe import attempt_path
from rltui.watch.attempt_logs import RAY_LOGS, log_files
from rltui.watch.log_merge import LogSource, MergedReader, end_of, open_sources, place_of, timed_hits
from rltui.watch.log_search import LogQuery, Searched, search_log
from rltui.watch.log_times import moment, place_line, zone_of
from rltui.watch.snapshots import ALL_LOGS, LogFile, LogPart, RunSummary

BEFORE, AFTER = 1000, 1000
"""Lines of a piece before and behind a place."""


def logs_of(client: RelayClient, run: RunSummary) -> tuple[LogFile, ...]:
    """The logs of a run's newest attempt, of all its nodes."""
    path = attempt_path(run)
    rays = if_there(lambda: client.list(f"{path}/{RAY_LOGS}"))
    return log_files(client.list(path), rays or ())


def sources_of(client: RelayClient, run: RunSummary, files: tuple[LogFile, ...]) -> list[LogSource]:
    """``files`` of a run, ready to be merged."""
    return open_sources(client, attempt_path(run), files, zone_of(client), run.created_at)


def read_piece(
    client: RelayClient, run: RunSummary, name: str, place: Mapping[str, int] | None, at: float | None = None
) -> LogPart:
    """A piece of the logs around a place.

    Args:
        client: The relay of the cluster.
        run: Whose.
        name: As in ``LogSnapshot``.
        place: By log, the bytes before the place; None: the end. With ``at`` it may have one log only.
        at: When the line at the place was written, epoch seconds: where the other logs are then.
    """
    sources = sources_of(client, run, _named(client, run, name))
    end = end_of(sources, whole_only=run.is_live)
    there = {**(place_of(client, sources, at) if at is not None else {}), **place} if place is not None else end
    above = MergedReader(client, sources, there, backwards=True)
    below = MergedReader(client, sources, there, whole_only=run.is_live)
    before = above.lines(BEFORE if place is not None else 3 * BEFORE)[::-1]
    lines = [*before, *(below.lines(AFTER) if place is not None else ())]
    labels = {source.name: f"[{source.label}] " if name == ALL_LOGS else "" for source in sources}
    return LogPart(
        name=name,
        lines=tuple(f"{labels[line.log]}{line.text}" for line in lines),
        places=tuple((line.log, line.offset) for line in lines),
        here=len(before),
        top=above.place,
        bottom=below.place,
    )


def no_log_of(node: str, files: tuple[LogFile, ...]) -> UsageError:
    """What to raise where a node has no log of its own; on one node there is only the run's output."""
    nodes = ", ".join(sorted({one.node for one in files if one.node}))
    hint = f"Nodes with logs: {nodes}." if nodes else "No node has: the run's output holds the lines of all."
    return UsageError(f"{node} has no log of its own.", hint)


def search_run(client: RelayClient, run: RunSummary, name: str, query: LogQuery) -> Iterator[Searched]:
    """Search the log ``name``, or all logs, as a whole, one after the other, for the newest hits; each with its time.

    Raises:
        UsageError: The node has no log, or its log says no times and they are wanted.
        RelayError: The pattern cannot be read, or the cluster is away.
    """
    attempt = attempt_path(run)
    if name != ALL_LOGS and not query.is_limited:
        yield from search_log(client, attempt, name or rundir.OUT_LOG, query, newest=True)
        return
    files = _named(client, run, ALL_LOGS if query.node else name)
    sources = sources_of(client, run, tuple(one for one in files if query.node in ("", one.node)))
    if not sources:
        raise no_log_of(query.node, files)
    starts = {}
    if query.since:
        starts = place_of(client, sources, moment(query.since, client.hello().time, zone_of(client)))
    passed, size = 0, sum(source.size for source in sources)
    for source in sources:
        start = place_line(client, source.path, starts.get(source.name, 0))
        for piece in search_log(client, attempt, source.name, query, start, newest=True):
            timed = timed_hits(client, source, piece.hits)
            yield Searched(piece.hits, min(size, passed + piece.offset), size, tuple(at for at, _ in timed))
        passed += source.size


def _named(client: RelayClient, run: RunSummary, name: str) -> tuple[LogFile, ...]:
    return logs_of(client, run) if name == ALL_LOGS else (LogFile(name=name or rundir.OUT_LOG),)
