"""What ``rltui hold``, ``release``, ``requeue`` and ``update`` have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.cli.output import add_json, add_run, print_json, talk
from rltui.service.all_clusters import open_clusters

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary


def add_change(parser: argparse.ArgumentParser) -> None:
    """Declare what every such verb takes."""
    add_run(parser)
    add_json(parser)


def change(options: argparse.Namespace, act: Callable[[Context, RunSummary], str]) -> int:
    """Find the run, act on it, and say what was done."""
    with open_clusters(options.cluster) as clusters:
        context, summary = clusters.find(options.run)
        done = act(context, summary)
    talk(done)
    if options.json:
        print_json({"schema": 1, "run_id": summary.run_id, "job_id": summary.job_id, "done": done})
    return 0
