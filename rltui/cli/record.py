"""``rltui record``: a run as one file that `replay` shows again, without secrets."""

from __future__ import annotations

import argparse

import msgspec

from rltui.cli.output import add_json, add_run, answer, talk
from rltui.paths import with_home
from rltui.service.all_clusters import open_run
from rltui.service.record import default_name, in_words, record


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the run, the file, and whether to watch."""
    add_run(parser)
    parser.add_argument(
        "-o", "--output", default="", metavar="FILE", help="the file to make (default: RUN-recording.tar.gz here)"
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="watch a live run until it ends, or until ctrl+c, and record actors and queues as they change",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Write one file from which ``rltui replay`` shows the run again."""
    with open_run(options.cluster, options.run) as (context, summary):
        target = with_home(options.output or default_name(summary.run_id)).resolve()
        if options.follow and summary.is_live:
            talk(f"recording {summary.run_id} until it ends; ctrl+c ends the recording, and the run goes on")
        saved = record(context, summary, target, follow=options.follow)
    answer(options, {"run_id": summary.run_id, **msgspec.to_builtins(saved)}, in_words(saved))
    return 0
