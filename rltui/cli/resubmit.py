"""``rltui resubmit``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rltui.cli.output import add_json, print_json, talk
from rltui.service.actions import newest_checkpoint_step, resubmit
from rltui.service.context import open_context

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("run", metavar="RUN", help="id, unique prefix of one, or a layout's name (its newest run)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes of the layout")
    parser.add_argument("--wait", action="store_true", help="follow the run to its end; exit 1 if it fails")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Start the run again from its newest complete checkpoint."""
    with open_context() as context:
        summary = context.find(options.run)
        step = newest_checkpoint_step(context, summary)
        launched = resubmit(context, summary, options.overrides)
        start = "from step 0: it has no checkpoint" if step is None else f"from the checkpoint at step {step}"
        talk(f"attempt {launched.attempt} of {launched.run_id} starts {start}")
        if options.wait:
            from rltui.cli.follow import follow

            return follow(context, launched.run_id, options.json)
        if options.json:
            print_json({"schema": 1, **msgspec.to_builtins(launched), "checkpoint_step": step})
    return 0
