"""``rltui update``: change the time limit or excluded nodes of a waiting Slurm job."""

from __future__ import annotations

import argparse

from rltui.cli.job_change import add_arguments as add_change
from rltui.cli.job_change import change
from rltui.cli.output import add_exclude, confirm, show
from rltui.service.context import Context
from rltui.service.job_changes import preview_update, update
from rltui.watch.snapshots import RunSummary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_change(parser)
    add_exclude(parser)
    parser.add_argument("--time", default="", metavar="D-HH:MM:SS", help="the new time limit")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask where too few nodes would be left")


def run(options: argparse.Namespace) -> int:
    """Change the time limit or the excluded nodes of a Slurm job that waits; asks where too few nodes would be left."""

    def act(context: Context, summary: RunSummary) -> str:
        preview = preview_update(context, summary, options.exclude)
        if preview is not None:
            show(preview) if options.yes else confirm(preview)
        return update(context, summary, time=options.time, exclude=options.exclude)

    return change(options, act)
