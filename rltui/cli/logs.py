"""``rltui logs``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rltui.cli.output import add_json, add_run, print_json, print_lines
from rltui.cluster.profile import LOCAL
from rltui.onnode import rundir
from rltui.service.all_clusters import open_clusters
from rltui.service.describe import attempt_path
from rltui.watch.logs import LogReader

if TYPE_CHECKING:
    import argparse

    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary

PERIOD_S = 0.5
REMOTE_PERIOD_S = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_run(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the run ends")
    parser.add_argument("-n", "--lines", type=int, default=200, help="lines from the end to start with (default 200)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the log, freed of control characters."""
    with open_clusters(options.cluster) as clusters:
        context, summary = clusters.find(options.run)
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


def _reader(context: Context, run: RunSummary) -> LogReader:
    """The trainer's output; where it never came to that, the job script's own."""
    client, path = context.cluster.client, attempt_path(run)
    names = [entry.name for entry in client.list(path)]
    scripts = [name for name in names if name.startswith("slurm-") and name.endswith(".out")]
    name = rundir.OUT_LOG if rundir.OUT_LOG in names or not scripts else sorted(scripts)[-1]
    return LogReader(client, f"{path}/{name}")
