"""``rltui rm``: take ended runs or their old checkpoints away."""

from __future__ import annotations

import argparse

from rltui.cli.output import add_json
from rltui.cli.pick_runs import add_runs, do_to_all
from rltui.service.tidy import preview_remove, remove


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    parser.add_argument(
        "--keep", choices=("checkpoints", "newest"), default="",
        help="checkpoints: all but these go; newest: only checkpoints older than the newest go, and the run stays",
    )  # fmt: skip
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Take ended runs away, after a question where there is someone to ask."""
    return do_to_all(
        options,
        "Remove",
        lambda context, summary: preview_remove(context, summary, options.keep),
        lambda context, summary: remove(context, summary, options.keep),
    )
