"""``rltui cancel``."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from rltui.cli.output import add_json, add_run, print_json, talk
from rltui.errors import UsageError
from rltui.service.actions import cancel, preview_cancel
from rltui.service.all_clusters import open_clusters

if TYPE_CHECKING:
    import argparse

    from rltui.service.cockpit import ActionPreview

DEADLINE_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_run(parser)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it has ended")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Cancel one run, after a question where there is someone to ask."""
    with open_clusters(options.cluster) as clusters:
        context, summary = clusters.find(options.run)
        if not options.yes:
            confirm(preview_cancel(context, summary))
        talk(cancel(context, summary))
        deadline = time.monotonic() + (0 if options.no_wait else DEADLINE_S)
        while summary.is_live and time.monotonic() < deadline:
            time.sleep(0.3)
            summary = context.find(summary.run_id)
        if options.json:
            print_json({"schema": 1, "run_id": summary.run_id, "state": summary.state})
        else:
            talk(f"{summary.run_id}: {summary.state}")
    return 0 if options.no_wait or not summary.is_live else 3


def confirm(preview: ActionPreview) -> None:
    """Show what would be done and ask.

    Raises:
        UsageError: Nobody is there to ask, or the answer is no.
    """
    show(preview)
    ask(preview.title)


def ask(question: str) -> None:
    """Go on only if somebody says yes.

    Raises:
        UsageError: Nobody is there to ask, or the answer is no.
    """
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody is there to confirm.", "Add --yes.")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("Not done.")


def show(preview: ActionPreview) -> None:
    """Say what would be done: consequences, change, and what a check thinks of the change."""
    for line in (*preview.consequences, *preview.diff):
        talk(f"  {line}")
    for finding in preview.findings:
        talk(f"  {finding.severity} {finding.code} {finding.key}: {finding.message}")
