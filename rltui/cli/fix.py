"""``rltui fix``: mend what ended or holds up a run, and start it again from its newest checkpoint."""

from __future__ import annotations

import argparse

from rltui.cli.output import confirm, print_json, show, talk
from rltui.cli.resubmit import add_change, started
from rltui.service.all_clusters import open_run
from rltui.service.one_fix import carry_out, compose_fix, preview_fix


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the run, the user's own part of the fix, and how far to go."""
    add_change(parser, "changes of your own, besides the fix's", "only show the fix", "do not ask")


def run(options: argparse.Namespace) -> int:
    """Show what mends the run, and after a yes end it if it is alive, change it and start it again."""
    with open_run(options.cluster, options.run) as (context, summary):
        fix = compose_fix(context, summary, options.overrides, options.exclude)
        preview = preview_fix(context, summary, fix)
        if options.dry_run:
            if options.json:
                print_json({"schema": 1, "causes": fix.causes, "preview": preview})
            else:
                show(preview)
                for command in preview.commands:
                    talk(f"  $ {command}")
            return 0
        show(preview) if options.yes else confirm(preview)
        launched = carry_out(context, summary, fix, cancel_first=True, unchecked=options.unchecked, by="fix")
        return started(context, options, launched, causes=fix.causes)
