"""``rltui ps``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.cli import words
from rltui.cli.output import add_json, columns, print_json, print_lines, talk
from rltui.service.context import open_context

if TYPE_CHECKING:
    import argparse

    from rltui.watch.snapshots import RunSummary

HEADER = ("RUN", "STATE", "N×G", "STEP", "REWARD", "TOK/S", "AGE", "")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--live", action="store_true", help="only runs that have not ended")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """List the runs, newest first."""
    with open_context() as context:
        snapshot = context.runs()
    runs = [run for run in snapshot.runs if run.is_live or not options.live]
    if options.json:
        print_json({"schema": 1, "runs": runs})
    elif runs:
        print_lines(columns(HEADER, [_row(run) for run in runs], frozenset({3, 4, 5, 6})))
    else:
        talk("No runs yet. `rltui launch local/grpo-tiny` starts one, `rltui demo` shows it.")
    return 0


def _row(run: RunSummary) -> tuple[str, ...]:
    return (
        run.run_id,
        words.state(run),
        f"{run.nodes}×{run.gpus_per_node}",
        words.step(run),
        words.number(run.reward),
        words.rate(run.tokens_per_second),
        words.age(run.created_at),
        words.about(run)[:48],
    )
