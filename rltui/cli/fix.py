"""``rltui fix``."""

from __future__ import annotations

import argparse

import msgspec

from rltui.cli.asking import confirm, show
from rltui.cli.launch import add_unchecked
from rltui.cli.output import add_exclude, add_json, add_run, print_json, talk
from rltui.service.all_clusters import open_clusters
from rltui.service.one_fix import compose_fix, preview_fix
from rltui.service.resubmit import resubmit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the run, the user's own part of the fix, and how far to go."""
    add_run(parser)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes of your own, besides the fix's")
    add_exclude(parser)
    parser.add_argument("--dry-run", action="store_true", help="only show the fix")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_unchecked(parser)
    parser.add_argument("--wait", action="store_true", help="follow the run to its end; exit 1 if it fails")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Show what mends the run, and after a yes end it if it is alive, change it and start it again."""
    with open_clusters(options.cluster) as clusters:
        context, summary = clusters.find(options.run)
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
        launched = resubmit(
            context, summary, fix.overrides, fix.exclude, cancel_first=True, unchecked=options.unchecked, by="fix"
        )
        talk(f"attempt {launched.attempt} of {launched.run_id} {launched.start}")
        if options.wait:
            from rltui.cli.follow import follow

            return follow(context, launched.run_id, options.json)
        if options.json:
            print_json({"schema": 1, **msgspec.to_builtins(launched), "causes": fix.causes})
    return 0
