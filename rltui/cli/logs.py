"""``rltui logs``: print or follow the log of a run."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence

import msgspec

from rltui.cli.output import add_json, add_run, print_json, print_lines, talk
from rltui.cluster.profile import LOCAL
from rltui.cluster.relay_client import RelayClient
from rltui.errors import ClusterError, UsageError
from rltui.onnode import rundir
from rltui.service.all_clusters import open_run
from rltui.service.context import Context
from rltui.service.describe import attempt_path
from rltui.service.log_stream import logs_of, no_log_of, sources_of
from rltui.watch.log_folds import fold
from rltui.watch.log_merge import Frontier, LogSource, MergedLine, MergedReader, end_of, place_of, search_merged
from rltui.watch.log_search import LEVELS, ROLES, LogQuery, query_of, search_log
from rltui.watch.log_times import Clock, Place, moment, place_since, zone_of
from rltui.watch.snapshots import LogFile, RunSummary

PERIOD_S = 0.5
LIST_EVERY_S = 5.0
"""Seconds between two looks for new logs."""

REMOTE_PERIOD_S = 2.0
AT_ONCE = 2000
"""Lines that are merged, folded and printed together."""

MOST_NAMED = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on until the run ends; --json: an object a line"
    )
    parser.add_argument("-n", "--lines", type=int, default=200, help="lines from the end to start with (default 200)")
    parser.add_argument(
        "--raw", action="store_true", help="every line; else repeats and progress bars are one line on a terminal"
    )
    which = parser.add_argument_group("which logs; several are merged by time, each line led by its log")
    which.add_argument("--all", action="store_true", help="all logs of all nodes")
    which.add_argument("--log", default="", metavar="NAME", help="those whose name holds this")
    which.add_argument("--node", default="", metavar="N", help="those of this node")
    whole = parser.add_argument_group("searching whole logs, where they lie")
    whole.add_argument(
        "--grep",
        metavar="REGEX",
        help="print the lines with this, of all the log, with their numbers; --json: an object a line",
    )
    whole.add_argument("--level", choices=LEVELS, help="print the lines that say to be at least so serious")
    whole.add_argument("--rank", type=int, metavar="N", help="print the lines that name rank N as their own")
    whole.add_argument("--role", choices=tuple(ROLES), help="print the lines that processes of this role wrote")
    whole.add_argument("--since", metavar="TIME", help="print only lines written since: 10m, 2h, 2026-11-24T08:00")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the logs, freed of control characters."""
    with open_run(options.cluster, options.run) as (context, summary):
        client = context.cluster.client
        query = query_of(options.grep, options.level, options.rank, options.role)
        if query is None:
            return _print(context, summary, options)
        if options.follow:
            raise UsageError("A search does not follow.", "Leave -f out, or put `| grep` behind rltui logs -f.")
        files = _files(client, summary, options)
        if len(files) > 1:
            return _grep_all(client, summary, options, query, files)
        return _grep(client, summary, options, query, files[0].name)


def _print(context: Context, run: RunSummary, options: argparse.Namespace) -> int:
    """The lines from the end, or since a moment, and then what comes; 1 where nothing was written since."""
    client = context.cluster.client
    sources = _sources(client, run, options)
    place = end_of(sources, whole_only=options.follow and run.is_live)
    if options.since:
        _refuse_timeless(sources)
        began = place_of(client, sources, _moment(client, options.since))
        place = _show_on(client, run, sources, began, options, whole_only=options.follow and run.is_live)
        if place == began and not options.follow:
            return 1
    else:
        tail = MergedReader(client, sources, place, backwards=True).lines(max(0, options.lines))[::-1]
        if options.json and not options.follow:
            print_json({"schema": 1, "run_id": run.run_id, "lines": _texts(tail, sources)})
            return 0
        _show(run, tail, sources, options)
        if not tail and options.lines > 0 and not options.follow:
            talk(f"{run.run_id} has written nothing there; `rltui why {run.run_id}` says what is known of it.")
    if options.follow:
        _follow(context, run, sources, place, options)
    return 0


def _follow(
    context: Context, run: RunSummary, sources: Sequence[LogSource], place: Frontier, options: argparse.Namespace
) -> None:
    client, listed_at, away = context.cluster.client, time.monotonic(), ""
    while run.is_live:
        time.sleep(PERIOD_S if context.name == LOCAL else REMOTE_PERIOD_S)
        try:
            before, run, away = run.attempt, context.find(run.run_id), ""
        except ClusterError as error:  # in hours a link breaks, and the run goes on all the same
            if not away:
                talk(f"waiting for {context.name}: {error.message}")
            away = error.message
            continue
        place = _show_on(client, run, sources, place, options, whole_only=run.is_live and run.attempt == before)
        if run.attempt != before:
            place = {}  # a requeue, or the next job of a chain: it has logs of its own
        if run.attempt != before or not sources or time.monotonic() - listed_at > LIST_EVERY_S:
            sources, listed_at = _sources(client, run, options), time.monotonic()
            place = _show_on(client, run, sources, place, options, whole_only=run.is_live)


def _show_on(
    client: RelayClient,
    run: RunSummary,
    sources: Sequence[LogSource],
    place: Frontier,
    options: argparse.Namespace,
    *,
    whole_only: bool = False,
) -> Frontier:
    """Print what is behind ``place``; the place behind it comes back."""
    reader = MergedReader(client, sources, place, whole_only=whole_only)
    while lines := reader.lines(AT_ONCE):
        _show(run, lines, sources, options)
    return reader.place


def _show(
    run: RunSummary, lines: Sequence[MergedLine], sources: Sequence[LogSource], options: argparse.Namespace
) -> None:
    texts = _texts(lines, sources)
    if options.json:
        about = {"schema": 1, "run_id": run.run_id}
        told = [{**about, **_about(line), "text": line.text} for line in lines]
        print_lines(msgspec.json.encode(one).decode() for one in told)
    elif options.raw or not sys.stdout.isatty():  # what reads a pipe finds every line
        print_lines(texts)
    else:
        print_lines(one.shown for one in fold(texts))
    sys.stdout.flush()


def _about(line: MergedLine) -> dict[str, object]:
    return {"log": line.log, "offset": line.offset, "time": line.at if math.isfinite(line.at) else None}


def _texts(lines: Sequence[MergedLine], sources: Sequence[LogSource]) -> list[str]:
    """Lines as they are printed: among several logs, led by their log's name."""
    if len(sources) < 2:
        return [line.text for line in lines]
    labels = {source.name: source.label for source in sources}
    return [f"[{labels[line.log]}] {line.text}" for line in lines]


def _grep(client: RelayClient, run: RunSummary, options: argparse.Namespace, query: LogQuery, name: str) -> int:
    """Print what is found in a log as it is found; 1 where nothing is, as grep has it."""
    path, any_found = attempt_path(run), False
    start = _since(client, f"{path}/{name}", run, options.since) if options.since else None
    for piece in search_log(client, path, name, query, start):
        any_found = any_found or bool(piece.hits)
        if options.json:  # an object a line: what is found may be more than fits into memory
            about = {"schema": 1, "run_id": run.run_id}
            print_lines(msgspec.json.encode({**about, **msgspec.to_builtins(hit)}).decode() for hit in piece.hits)
        else:
            print_lines(f"{hit.line}: {hit.text}" for hit in piece.hits)
    return 0 if any_found else 1


def _grep_all(
    client: RelayClient, run: RunSummary, options: argparse.Namespace, query: LogQuery, files: tuple[LogFile, ...]
) -> int:
    """The same of several logs, in the order of time."""
    sources = sources_of(client, run, files)
    since = _moment(client, options.since) if options.since else None
    any_found = False
    for at, hit in search_merged(client, attempt_path(run), sources, query, since):
        any_found = True
        if options.json:
            about = {"schema": 1, "run_id": run.run_id, "time": at if math.isfinite(at) else None}
            print_lines([msgspec.json.encode({**about, **msgspec.to_builtins(hit)}).decode()])
        else:
            print_lines([f"{hit.log}:{hit.line}: {hit.text}"])
    return 0 if any_found else 1


def _moment(client: RelayClient, text: str) -> float:
    return moment(text, client.hello().time, zone_of(client))


def _since(client: RelayClient, path: str, run: RunSummary, text: str) -> Place:
    """Where in a log to begin."""
    file = client.read(path, 0, 1)
    clock = Clock(zone_of(client), newest=file.mtime, oldest=run.created_at)
    return place_since(client, path, _moment(client, text), clock)


def _refuse_timeless(sources: Sequence[LogSource]) -> None:
    """Refuse a moment of logs none of which says times; say of which it is a guess."""
    guessed = [source.name for source in sources if source.size and not source.is_timed]
    if guessed and len(guessed) == len(sources):
        raise UsageError(f"{guessed[0]} does not say when its lines were written.", "Leave --since out.")
    if guessed:
        talk(f"{len(guessed)} logs say no times and are spread evenly, such as {guessed[0]}.")


def _sources(client: RelayClient, run: RunSummary, options: argparse.Namespace) -> list[LogSource]:
    return sources_of(client, run, _files(client, run, options))


def _files(client: RelayClient, run: RunSummary, options: argparse.Namespace) -> tuple[LogFile, ...]:
    """The logs that are meant.

    Raises:
        UsageError: There is none that is called so.
    """
    if not (options.all or options.log or options.node):
        return (LogFile(name=_own(client, attempt_path(run))),)
    there = logs_of(client, run)
    logs = tuple(one for one in there if options.log in one.name and (not options.node or one.node == options.node))
    if not logs and options.node:
        raise no_log_of(options.node, there)
    if not logs:
        names = ", ".join(one.name for one in there[:MOST_NAMED]) + (" …" if len(there) > MOST_NAMED else "")
        raise UsageError("No log of this attempt is called so.", f"Logs: {names or 'none'}.")
    return logs


def _own(client: RelayClient, path: str) -> str:
    """The trainer's output; where it never came to that, the job script's own."""
    names = [entry.name for entry in client.list(path)]
    scripts = [name for name in names if name.startswith("slurm-") and name.endswith(".out")]
    return rundir.OUT_LOG if rundir.OUT_LOG in names or not scripts else sorted(scripts)[-1]
