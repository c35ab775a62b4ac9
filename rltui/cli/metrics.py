"""``rltui metrics``: the metrics of a run."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

from rltui.cli.output import add_json, add_only_cluster, add_watch, answer, columns
from rltui.cli.run_picture import nothing_yet, read_run
from rltui.errors import UsageError
from rltui.watch.snapshots import MetricsSnapshot

HEADER = ("METRIC", "LATEST", "LEAST", "MEDIAN", "MOST")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help="id, unique prefix of one, or a layout's name")
    parser.add_argument(
        "--wandb", metavar="WHICH", help="any W&B run instead: its .wandb file or folder, or ENTITY/PROJECT/RUN"
    )
    add_only_cluster(parser)
    add_json(parser)
    add_watch(parser)


def run(options: argparse.Namespace) -> int:
    """Print the latest value of every metric with its range, or all curves as JSON."""
    if bool(options.run) == bool(options.wandb):
        raise UsageError("Name a run, or a W&B run.", "rltui metrics RUN, or rltui metrics --wandb WHICH")
    if options.wandb:
        from rltui.service.wandb_history import read_history

        metrics, about, nothing = read_history(options.wandb), {"wandb": options.wandb}, "It has no history yet."
    else:
        picture = read_run(options, whole=True)
        metrics, about = picture.metrics, {"run_id": picture.summary.run_id}
        nothing = nothing_yet(picture, "there are no numbers of a step")
    told = {**about, "steps": metrics.steps, "series": metrics.series, "latest": metrics.latest}
    answer(options, told, _lines(metrics), nothing)
    return 0


def _lines(metrics: MetricsSnapshot) -> Iterator[str]:
    if metrics.steps:
        yield f"steps {metrics.steps[0]} to {metrics.steps[-1]}"
        yield from columns(HEADER, list(_rows(metrics)), frozenset({1, 2, 3, 4}))


def _rows(metrics: MetricsSnapshot) -> Iterator[tuple[str, ...]]:
    for name in sorted(metrics.series):
        values = sorted(value for value in metrics.series[name] if math.isfinite(value))
        if values:
            shown = (metrics.latest.get(name, math.nan), values[0], values[len(values) // 2], values[-1])
            yield (name, *(f"{value:.4g}" for value in shown))
