"""``rltui attach``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.cli.cockpit import open_cockpit
from rltui.service.context import open_context

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("run", metavar="RUN", help="id, unique prefix of one, or a layout's name (its newest run)")
    parser.add_argument("--readonly", action="store_true", help="look only")
    parser.add_argument("--ascii", action="store_true", help="no glyphs beyond ASCII")


def run(options: argparse.Namespace) -> int:
    """Open the cockpit on one run."""
    with open_context() as context:
        run_id = context.find(options.run).run_id
    return open_cockpit(run_id, readonly=options.readonly, ascii_only=options.ascii)
