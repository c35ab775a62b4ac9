"""``rltui calibrate``: measure in a run what the cards reach, for plan's next predictions."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from msgspec import structs

from rltui.cli.output import add_json, add_run, answer
from rltui.errors import RltuiError, UsageError
from rltui.paths import state_dir
from rltui.plan.calibrate import Calibration, Phase, calibrate
from rltui.plan.rates import CALIBRATION_FILE, read_calibration, write_calibration
from rltui.runs.directory import load_attempt_layout
from rltui.service.all_clusters import open_run
from rltui.service.describe import attempt_path
from rltui.watch.run_watcher import RunWatcher


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the run, and whether to write down what it says."""
    add_run(parser)
    parser.add_argument("--dry-run", action="store_true", help="only show it")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Measure what the cards reached in a run, for plan's next predictions; 1 where the run cannot tell."""
    try:
        known = read_calibration(state_dir())
    except ValueError as error:
        raise UsageError(f"{error}.", "Correct or remove the file first: it would be written anew.") from error
    with open_run(options.cluster, options.run) as (context, summary):
        path = attempt_path(summary)
        try:
            layout = load_attempt_layout(context.cluster.client, path).layout
        except RltuiError as error:
            raise RltuiError(f"{summary.run_id} has no layout to compare with: {error.message}") from error
        if layout.selftest is not None:
            raise UsageError(
                f"{summary.run_id} is a self-test, which trains too little to say what a run reaches.",
                f"rltui selftest --of {summary.run_id} keeps what it measured of cards and links.",
            )
        series = RunWatcher(context.cluster.client, summary.path).every_step().series
    try:
        found = calibrate(layout, series, known, f"measured in {summary.run_id} on {context.name}")
    except RltuiError as error:
        raise RltuiError(f"{summary.run_id} cannot tell what its cards reach. {error.message}") from error
    if not options.dry_run:
        write_calibration(state_dir(), {**known, found.card: {**known.get(found.card, {}), found.family: found.rates}})
    told = {"run_id": summary.run_id, **structs.asdict(found), "written": not options.dry_run}
    answer(options, told, _lines(found, written=not options.dry_run))
    return 0


def _lines(found: Calibration, *, written: bool) -> Iterator[str]:
    yield f"{found.card}, {found.family} models, {found.steps} steps"
    yield _line("training", "of the peak FLOP/s", found.training)
    yield _line("decoding", "of the memory bandwidth", found.decode)
    yield f"written to {state_dir() / CALIBRATION_FILE}: `rltui plan` takes them" if written else "nothing was written"


def _line(name: str, of_what: str, phase: Phase) -> str:
    said = f"{name}: {phase.measured_s:.3g} s a step, plan said {phase.before_s:.3g} s"
    return f"{said}; {100 * phase.share:.1f} % {of_what}" if phase.share else f"{said}; stays as it was: {phase.reason}"
