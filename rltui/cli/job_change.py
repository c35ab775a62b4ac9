"""``rltui hold`` and ``rltui release``, and what ``requeue``, ``update`` and ``release-run`` share with them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from rltui.cli.output import add_json, add_run, print_json, talk
from rltui.service.all_clusters import open_clusters
from rltui.service.job_changes import hold, release

if TYPE_CHECKING:
    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what every such verb takes."""
    add_run(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Keep a pending Slurm job from starting, or let it start."""
    return change(options, {"hold": hold, "release": release}[options.verb])


def change(options: argparse.Namespace, act: Callable[[Context, RunSummary], str]) -> int:
    """Find the run, act on it, and say what was done."""
    with open_clusters(options.cluster) as clusters:
        context, summary = clusters.find(options.run)
        done = act(context, summary)
    talk(done)
    if options.json:
        print_json({"schema": 1, "run_id": summary.run_id, "job_id": summary.job_id, "done": done})
    return 0
