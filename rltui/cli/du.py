"""``rltui du``: what runs take of their disks, the largest first."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial

from rltui.cli.output import add_json, answer, columns, talk
from rltui.cli.pick_runs import add_runs, by_cluster, picked_runs
from rltui.errors import tried
from rltui.service.all_clusters import open_clusters
from rltui.service.tidy import Disk, RunSize, usage

HEADER = ("RUN", "STATE", "GIB", "CHECKPOINTS", "GIB OF THEM", "CLUSTER")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_runs(parser, all_by_default=True)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print what runs take of their disks, the largest first; exits with 3 where a cluster could not be counted."""
    sizes: list[RunSize] = []
    disks: dict[str, Disk] = {}
    problems: list[str] = []
    with open_clusters(options.cluster) as clusters:
        for context, runs in by_cluster(clusters, picked_runs(clusters, options)):
            found, error = tried(partial(usage, context, runs))
            if found is not None:
                sizes += found[0]
                disks[context.name] = found[1]
            else:
                problems.append(f"{context.name}: {error}")
    sizes.sort(key=lambda one: -one.total_gib)
    answer(options, {"runs": sizes, "disks": disks, "problem": "; ".join(problems)}, _lines(sizes, disks))
    for problem in problems:
        talk(f"rltui: {problem}")
    return 3 if problems else 0


def _lines(sizes: Sequence[RunSize], disks: dict[str, Disk]) -> Iterator[str]:
    if not sizes:
        yield "No runs."
        return
    rows = [
        (
            one.run_id,
            one.state if one.archived is None else f"archived, {one.archived.bytes / 2**30:.2f} GiB",
            f"{one.total_gib:.2f}",
            str(one.num_checkpoints),
            f"{one.checkpoints_gib:.2f}",
            one.cluster,
        )
        for one in sizes
    ]
    yield from columns(HEADER, rows, frozenset({2, 3, 4}))
    for name, found in disks.items():
        taken = sum(one.total_gib for one in sizes if one.cluster == name)
        free = f"{found.free_gib:.0f} of {found.size_gib:.0f} GiB are free on {found.root}"
        yield f"{name}: {taken:.2f} GiB of runs; {free}"
        for quota in found.quotas:
            yield f"{name}: quota {quota.words}{': nearly full' if quota.is_nearly_full else ''}"
