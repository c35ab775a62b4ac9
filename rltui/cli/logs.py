"""``rltui logs``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from rltui.cli.output import add_json, add_run, print_json, print_lines
from rltui.cluster.profile import LOCAL
from rltui.errors import UsageError
from rltui.onnode import rundir
from rltui.service.all_clusters import open_clusters
from rltui.service.describe import attempt_path
from rltui.service.run_filter import span_s
from rltui.watch.attempt_logs import RAY_LOGS, log_files
from rltui.watch.log_search import LEVELS, ROLES, LogQuery, query_of, search_log
from rltui.watch.log_times import Clock, moment, place_since, zone_of
from rltui.watch.logs import LogReader

if TYPE_CHECKING:
    import argparse

    from rltui.cluster.relay_client import RelayClient
    from rltui.service.context import Context
    from rltui.watch.log_times import Place
    from rltui.watch.snapshots import RunSummary

PERIOD_S = 0.5
REMOTE_PERIOD_S = 2.0
MOST_NAMED = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_run(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the run ends")
    parser.add_argument("-n", "--lines", type=int, default=200, help="lines from the end to start with (default 200)")
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
    whole.add_argument("--log", default="", metavar="NAME", help="of logs whose name holds this; else of its output")
    whole.add_argument("--node", default="", metavar="N", help="of the logs of this node")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the log, freed of control characters."""
    with open_clusters(options.cluster) as clusters:
        context, summary = clusters.find(options.run)
        query = query_of(options.grep, options.level, options.rank, options.role)
        if query is not None or options.since:
            return _grep(context, summary, options, query)
        if options.log or options.node:
            raise UsageError(
                "--log and --node choose what is searched.", "Add --grep, --level, --rank, --role or --since."
            )
        reader = _reader(context, summary)
        there = reader.new_lines()
        lines = there[-options.lines :] if options.lines > 0 else []
        if options.json:
            print_json({"schema": 1, "run_id": summary.run_id, "lines": lines})
            return 0
        print_lines(lines)
        while options.follow and summary.is_live:
            time.sleep(PERIOD_S if context.name == LOCAL else REMOTE_PERIOD_S)
            before, summary = summary.attempt, context.find(summary.run_id)
            print_lines(reader.new_lines())
            if summary.attempt != before:
                # a requeue, or the next job of a chain: it has a log of its own
                reader = _reader(context, summary)
                print_lines(reader.new_lines())
    return 0


def _grep(context: Context, run: RunSummary, options: argparse.Namespace, query: LogQuery | None) -> int:
    """Print what is found as it is found, of no query every line; 1 where nothing is, as grep has it."""
    client, path = context.cluster.client, attempt_path(run)
    names = _chosen(client, path, options.log, options.node) if options.log or options.node else [_own(client, path)]
    several, any_found = len(names) > 1, False
    for name in names:
        start = _since(client, f"{path}/{name}", run, options.since) if options.since else None
        for piece in search_log(client, path, name, query or LogQuery(""), start):
            any_found = any_found or bool(piece.hits)
            if options.json:  # an object a line: what is found may be more than fits into memory
                about = {"schema": 1, "run_id": run.run_id}
                print_lines(msgspec.json.encode({**about, **msgspec.to_builtins(hit)}).decode() for hit in piece.hits)
            else:
                place = "{hit.log}:" if several else ""
                place += "" if query is None else "{hit.line}: "
                print_lines([place.format(hit=hit) + hit.text for hit in piece.hits])
    return 0 if any_found else 1


def _since(client: RelayClient, path: str, run: RunSummary, text: str) -> Place:
    """Where in a log to begin."""
    zone, file = zone_of(client), client.read(path, 0, 1)
    since = moment(text, span_s(text), client.hello().time, zone)
    return place_since(client, path, since, Clock(zone, newest=file.mtime, oldest=run.created_at))


def _chosen(client: RelayClient, path: str, part: str, node: str) -> list[str]:
    """Logs of an attempt by a part of their name, and by the node that they are of."""
    own = client.list(path)
    rays = client.list(f"{path}/{RAY_LOGS}") if any(entry.name == RAY_LOGS for entry in own) else ()
    there = log_files(own, rays)
    logs = [one.name for one in there if part in one.name and (not node or one.node == node)]
    if not logs:
        nodes = ", ".join(sorted({one.node for one in there if one.node})) or "none"
        names = ", ".join(one.name for one in there[:MOST_NAMED]) + (" …" if len(there) > MOST_NAMED else "")
        raise UsageError("No log of this attempt is called so.", f"Logs: {names or 'none'}. Nodes with logs: {nodes}.")
    return logs


def _reader(context: Context, run: RunSummary) -> LogReader:
    client, path = context.cluster.client, attempt_path(run)
    return LogReader(client, f"{path}/{_own(client, path)}")


def _own(client: RelayClient, path: str) -> str:
    """The trainer's output; where it never came to that, the job script's own."""
    names = [entry.name for entry in client.list(path)]
    scripts = [name for name in names if name.startswith("slurm-") and name.endswith(".out")]
    return rundir.OUT_LOG if rundir.OUT_LOG in names or not scripts else sorted(scripts)[-1]
