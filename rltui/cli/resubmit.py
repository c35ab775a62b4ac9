"""``rltui resubmit``: start a run again from its newest checkpoint."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import msgspec

from rltui.check.findings import Finding
from rltui.cli.launch import add_unchecked
from rltui.cli.output import add_exclude, add_json, add_run, confirm, print_json, show, talk
from rltui.service.all_clusters import open_run
from rltui.service.context import Context
from rltui.service.describe import newest_checkpoint_step
from rltui.service.fixes import lower_memory
from rltui.service.resubmit import changed, needs_consent, preview_resubmit, require_possible, resubmit
from rltui.service.submit import Launched
from rltui.watch.snapshots import RunSummary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    yes = "do not ask before ending what is not over"
    add_change(parser, "changes of the layout", "only show what would be done", yes)
    parser.add_argument("--script", default="", metavar="FILE", help="of a script's run: this edited copy of it")
    parser.add_argument("--lower-memory", action="store_true", help="lower the memory peak that is in its way")
    parser.add_argument("--cancel", action="store_true", help="end it first if it is alive")


def add_change(parser: argparse.ArgumentParser, changes: str, dry_run: str, yes: str) -> None:
    """Declare the run, what to change in it before it is started again, and how far to go, in a verb's own words."""
    add_run(parser)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help=changes)
    add_exclude(parser)
    parser.add_argument("--dry-run", action="store_true", help=dry_run)
    parser.add_argument("-y", "--yes", action="store_true", help=yes)
    add_unchecked(parser)
    parser.add_argument("--wait", action="store_true", help="follow the run to its end; exit 1 if it fails")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Start the run again from its newest complete checkpoint."""
    with open_run(options.cluster, options.run) as (context, summary):
        overrides = _overrides(context, summary, options)
        tell: Callable[[Finding], None] | None = _tell
        is_risky = needs_consent(context, summary) and (options.cancel or not summary.is_live)
        if options.dry_run or overrides or options.exclude or options.script or is_risky:
            change = changed(context, summary, overrides, options.exclude, options.script)
            preview = preview_resubmit(context, summary, overrides, options.exclude, change)
            if options.dry_run:
                print_json({"schema": 1, "preview": preview}) if options.json else show(preview)
                require_possible(context, summary, change, unchecked=options.unchecked)
                return 0
            confirm(preview) if is_risky and not options.yes else show(preview)
            tell = None  # the preview has said it
        step = newest_checkpoint_step(context, summary)
        launched = resubmit(
            context,
            summary,
            overrides,
            options.exclude,
            script=options.script,
            cancel_first=options.cancel,
            unchecked=options.unchecked,
            tell=tell,
        )
        return started(context, options, launched, checkpoint_step=step)


def started(context: Context, options: argparse.Namespace, launched: Launched, **more: object) -> int:
    """Say which attempt was started, with ``more`` in its JSON; with ``--wait`` follow the run to its end."""
    talk(f"attempt {launched.attempt} of {launched.run_id} {launched.start}")
    if options.wait:
        from rltui.cli.follow import follow

        return follow(context, launched.run_id, options.json)
    if options.json:
        print_json({"schema": 1, **msgspec.to_builtins(launched), **more})
    return 0


def _tell(finding: Finding) -> None:
    talk(f"  {finding.severity} {finding.code}: {finding.message}")


def _overrides(context: Context, summary: RunSummary, options: argparse.Namespace) -> list[str]:
    if not options.lower_memory:
        return list(options.overrides)
    fix = lower_memory(context, summary)
    for line in fix.words:
        talk(f"  {line}")
    return [*fix.overrides, *options.overrides]
