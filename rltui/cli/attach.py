"""``rltui attach``: open the cockpit on one run."""

from __future__ import annotations

import argparse

from rltui.cli.cockpit import open_cockpit
from rltui.cli.output import add_run
from rltui.service.all_clusters import open_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--readonly", action="store_true", help="look only")
    parser.add_argument("--ascii", action="store_true", help="no glyphs beyond ASCII")


def run(options: argparse.Namespace) -> int:
    """Open the cockpit on one run."""
    with open_run(options.cluster, options.run) as (_, summary):
        word = str(summary.identity)
    return open_cockpit(word, readonly=options.readonly, ascii_only=options.ascii)
