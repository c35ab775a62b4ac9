"""``rltui journal``: what was done with runs from this machine, when, and what came of it."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rltui.cli.output import add_json, answer, columns
from rltui.cluster.plain_text import printable
from rltui.cluster.profiles import load_profiles
from rltui.errors import UsageError
from rltui.onnode.hands_off import STATE
from rltui.paths import run_root, state_dir, with_home
from rltui.runs.journal import Journal, JournalAction, actions

HEADER = ("WHEN", "ACTION", "OUTCOME", "S", "RUN", "JOB", "")
LAST = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", default="", help="only of runs whose id begins so")
    parser.add_argument("--last", type=int, default=LAST, metavar="N", help=f"the last N (default: {LAST}; 0: all)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print what rltui did with runs from this machine, the newest last; reads files and asks no cluster."""
    if options.last < 0:
        raise UsageError(f"--last {options.last}: that is no number of actions.", "0 prints all.")
    journals = [Journal(state_dir()), *(Journal(root / STATE) for root in _run_roots())]
    taken = sorted((one for each in journals for one in actions(each.entries())), key=lambda one: one.began_at)
    found = [one for one in taken if one.run.startswith(options.run)][-options.last :]
    path = journals[0].path
    lines = columns(HEADER, [_row(one) for one in found], frozenset({3})) if found else ()
    nothing = f"Nothing was done with {options.run or 'any run'} from here; what is done goes to {path}."
    answer(options, {"path": str(path), "actions": found}, lines, nothing)
    return 0


def _run_roots() -> set[Path]:
    """The folders of runs that this machine has itself: what hands-off mode did with them stands there."""
    near = [one for one in load_profiles().by_name.values() if not one.host and not one.hosts and one.run_root]
    return {run_root(), *(with_home(one.run_root) for one in near)}


def _row(one: JournalAction) -> tuple[str, ...]:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.began_at))
    took = "" if one.took_s is None else f"{one.took_s:.1f}"
    outcome = "not known" if one.took_s is None else one.outcome
    run = f"{one.run} #{one.attempt}" if one.attempt else one.run
    about = printable(" ".join(filter(None, [*one.words, one.reason])))
    return (when, one.action, outcome, took, run, one.job, about)
