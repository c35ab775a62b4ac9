"""``rltui requeue``: queue a running Slurm job again under the same id."""

from __future__ import annotations

import argparse

from rltui.cli.job_change import add_arguments as add_change
from rltui.cli.job_change import change
from rltui.cli.output import add_exclude, confirm, show
from rltui.service.context import Context
from rltui.service.job_changes import preview_requeue, requeue
from rltui.watch.snapshots import RunSummary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_change(parser)
    add_exclude(parser)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def run(options: argparse.Namespace) -> int:
    """End a running Slurm job and queue it again under the same id, after a question."""

    def act(context: Context, summary: RunSummary) -> str:
        preview = preview_requeue(context, summary, options.exclude)
        show(preview) if options.yes else confirm(preview)
        return requeue(context, summary, options.exclude)

    return change(options, act)
