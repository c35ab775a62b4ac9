"""``rltui archive``: put ended runs away as one file each, or bring them back."""

from __future__ import annotations

import argparse

from rltui.cli.output import add_json
from rltui.cli.pick_runs import add_runs, do_to_all
from rltui.errors import UsageError
from rltui.service.archive import archive, bring_back, preview_archive, preview_back


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    parser.add_argument("--to", metavar="FOLDER", default="", help="folder on the cluster for a file RUN.tar each")
    parser.add_argument(
        "--checkpoints", choices=("all", "newest", "none"), default="all", help="which go into the file (default: all)"
    )
    parser.add_argument("--back", action="store_true", help="bring archived runs back instead")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Put ended runs away, or bring them back, after a question where there is someone to ask."""
    if options.back:
        return do_to_all(options, "Bring back", preview_back, bring_back)
    if not options.to:
        raise UsageError("--to FOLDER is missing: where the files go, on the runs' cluster.")
    return do_to_all(
        options,
        "Archive",
        lambda context, summary: preview_archive(context, summary, options.to, options.checkpoints),
        lambda context, summary: archive(context, summary, options.to, options.checkpoints),
    )
