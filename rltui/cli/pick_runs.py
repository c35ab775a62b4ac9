"""Verbs on several runs: which they are, one question for all, and one that fails does not stop the others."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from rltui.cli.output import add_only_cluster, ask, print_json, show, talk
from rltui.errors import UsageError, tried
from rltui.service.all_clusters import AllClusters, open_clusters
from rltui.service.cockpit import ActionPreview
from rltui.service.context import Context
from rltui.service.run_filter import WORDS, picked
from rltui.watch.snapshots import RunSummary, names_of


def add_runs(parser: argparse.ArgumentParser, *, all_by_default: bool = False) -> None:
    """Declare the runs that a verb is about.

    Args:
        parser: The verb's.
        all_by_default: Whether no word means all runs; else one is needed.
    """
    words = "none: all" if all_by_default else "one or more"
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"ids, or unique prefixes of them; {words}")
    parser.add_argument("--where", metavar="FILTER", help=f"all that fit, as behind / in the cockpit: {WORDS}")
    parser.set_defaults(all_by_default=all_by_default)
    add_only_cluster(parser)


def picked_runs(clusters: AllClusters, options: argparse.Namespace) -> list[RunSummary]:
    """The runs that ``options`` name or describe, each once.

    Raises:
        UsageError: None is meant, or more than one by one word.
        ClusterError: A cluster that has to be asked is away.
    """
    found = [clusters.find(word)[1] for word in options.runs]
    if options.where is not None or (not found and options.all_by_default):
        snapshot = clusters.runs()
        if snapshot.problem:
            talk(f"rltui: {snapshot.problem}")
        here = [run for run in snapshot.runs if not run.as_of and not run.through]
        found += here if options.where is None else picked(here, options.where, time.time())
    elif not found:
        raise UsageError("No run is named.", "Name some, or --where FILTER; `rltui ps` lists them.")
    return list({run.identity: run for run in found}.values())


def by_cluster(clusters: AllClusters, runs: Sequence[RunSummary]) -> Iterator[tuple[Context, list[RunSummary]]]:
    """``runs`` by the cluster that reads them, each with the context that acts on it."""
    for name in dict.fromkeys(run.reader for run in runs):
        yield clusters.context(name), [run for run in runs if run.reader == name]


def do_to_all(
    options: argparse.Namespace,
    verb: str,
    preview: Callable[[Context, RunSummary], ActionPreview],
    act: Callable[[Context, RunSummary], str],
) -> int:
    """Ask once, then act on each run; exits with 1 where one could not be done.

    Raises:
        UsageError: Nothing is there to do, nobody is there to ask, or the answer is no.
    """
    with open_clusters(options.cluster) as clusters:
        found = picked_runs(clusters, options)
        names = names_of(run.identity for run in found)
        runs = [(clusters.context(run.reader), run, names[run.identity]) for run in found]
        shown = {name: tried(partial(preview, context, run)) for context, run, name in runs}
        previews = {name: one for name, (one, _) in shown.items() if one is not None}
        refused = {name: error for name, (_, error) in shown.items() if error is not None}
        if len(runs) == 1:
            for error in refused.values():
                raise error
        for name, error in refused.items():
            talk(f"{name} is left alone: {error.in_one_line}")
        if not previews:
            raise UsageError("There is nothing to do: no run fits." if not runs else "It can be done to none of them.")
        if not options.yes:
            _confirm(verb, previews)
        done = {name: tried(partial(act, context, run)) for context, run, name in runs if name in previews}
    failed = {name: error.in_one_line for name, (_, error) in done.items() if error is not None}
    for name, (said, _) in done.items():
        talk(said or f"{name}: {failed[name]}")
    if options.json:
        left = {name: error.in_one_line for name, error in refused.items()}
        print_json({"schema": 1, "done": [one for one in done if one not in failed], "failed": failed, "left": left})
    return 1 if failed else 0


def _confirm(verb: str, previews: Mapping[str, ActionPreview]) -> None:
    for name, one in previews.items():
        if len(previews) > 1:
            talk(name)
        show(one)
    ask(next(iter(previews.values())).title if len(previews) == 1 else f"{verb} {len(previews)} runs?")
