"""``rltui cancel``: end a run."""

from __future__ import annotations

import argparse
import time
from functools import partial

from rltui.cli.output import add_json, confirm, print_json, talk
from rltui.cli.pick_runs import add_runs, do_to_all
from rltui.service.actions import AS_CANCEL, SIGNALS, cancel, preview_cancel, preview_signal, send_signal, signal_name
from rltui.service.all_clusters import open_clusters

DEADLINE_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for its end; several are never waited for")
    signals = "; ".join(f"{name}: {does}" for name, does in SIGNALS.items())
    parser.add_argument("--signal", metavar="NAME", default="TERM", help=signals)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Cancel runs, after a question where there is someone to ask."""
    name = signal_name(options.signal)
    if name not in AS_CANCEL:
        preview, send = partial(preview_signal, name=name), partial(send_signal, name=name)
        return do_to_all(options, f"Send SIG{name} to", preview, send)
    if options.where is not None or len(options.runs) != 1:
        return do_to_all(options, "Cancel", preview_cancel, cancel)
    with open_clusters(options.cluster) as clusters:
        context, summary = clusters.find(options.runs[0])
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
