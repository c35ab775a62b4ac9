"""One picture of a run for the verbs that print a part of it: the same snapshots that the cockpit shows."""

from __future__ import annotations

import argparse

from msgspec.structs import replace

from rltui.cli.output import add_json, add_run, add_watch, talk
from rltui.service.all_clusters import open_run
from rltui.watch.run_watcher import RunWatcher
from rltui.watch.snapshots import RunSnapshot


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what every verb takes that only looks at a run: the run, ``--json`` and ``--watch``."""
    add_run(parser)
    add_json(parser)
    add_watch(parser)


def read_run(options: argparse.Namespace, *, whole: bool = False) -> RunSnapshot:
    """The run that ``options`` name, as it is now.

    Args:
        options: The verb's.
        whole: Read all steps and events, however long that takes; else a long run's may end before now.

    Raises:
        UsageError: No run, or more than one, is meant.
    """
    with open_run(options.cluster, options.run) as (context, summary):
        watcher = RunWatcher(context.cluster.client, summary.path)
        picture = replace(watcher.whole(), metrics=watcher.every_step()) if whole else watcher.snapshot()
    return replace(picture, summary=summary)


def nothing_yet(picture: RunSnapshot, what: str) -> str:
    """What to say where there is nothing to print; of a run that may still bring it, that it has not come yet."""
    run = picture.summary
    return f"{run.run_id} is {run.state}: {what}{' yet' if run.is_live else ''}."


def talk_age(picture: RunSnapshot, noted_at: float) -> None:
    """Say how old it is where it was noted on the run's head node, and not asked for just now."""
    if noted_at:
        talk(f"as noted on the run's head node {max(0.0, picture.taken_at - noted_at):.0f} s ago")
