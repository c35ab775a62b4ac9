"""``rltui bundle``: all that is known of a run as one file to attach to a bug report, without secrets."""

from __future__ import annotations

import argparse

import msgspec

from rltui.cli.output import add_json, add_run, answer
from rltui.paths import with_home
from rltui.service.all_clusters import open_run
from rltui.service.bundle import default_name, in_words, make_bundle


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the run and the file."""
    add_run(parser)
    parser.add_argument(
        "--output", default="", metavar="FILE", help="the file to make (default: RUN-bundle.tar.gz here)"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Write one file with all that is known of a run; 1 where a node was asked and did not answer."""
    with open_run(options.cluster, options.run) as (context, summary):
        target = with_home(options.output or default_name(summary.run_id)).resolve()
        bundle = make_bundle(context, summary, target)
    answer(options, {"run_id": summary.run_id, **msgspec.to_builtins(bundle)}, in_words(bundle))
    return 1 if bundle.silent else 0
