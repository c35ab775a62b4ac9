"""``rltui update``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.cli.job_change import add_change, add_exclude, change
from rltui.service.job_changes import update

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_change(parser)
    add_exclude(parser)
    parser.add_argument("--time", default="", metavar="D-HH:MM:SS", help="the new time limit")


def run(options: argparse.Namespace) -> int:
    """Change the time limit or the excluded nodes of a Slurm job that waits."""
    return change(
        options, lambda context, summary: update(context, summary, time=options.time, exclude=options.exclude)
    )
