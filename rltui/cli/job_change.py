"""``rltui hold``, ``release`` and ``release-run``, and what ``requeue`` and ``update`` share with them."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from rltui.cli.output import add_json, add_run, print_json, talk
from rltui.service.all_clusters import open_run
from rltui.service.context import Context
from rltui.service.job_changes import hold, release
from rltui.watch.snapshots import RunSummary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what every such verb takes."""
    add_run(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Keep a pending Slurm job from starting, let it start, or forget an adopted run, whose job goes on."""
    if options.verb == "release-run":
        from rltui.service.adopt import release_run  # reads scripts with all importers

        return change(options, release_run)
    return change(options, {"hold": hold, "release": release}[options.verb])


def change(options: argparse.Namespace, act: Callable[[Context, RunSummary], str]) -> int:
    """Find the run, act on it, and say what was done."""
    with open_run(options.cluster, options.run) as (context, summary):
        done = act(context, summary)
    talk(done)
    if options.json:
        print_json({"schema": 1, "run_id": summary.run_id, "job_id": summary.job_id, "done": done})
    return 0
