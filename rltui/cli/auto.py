"""``rltui auto``: let a run go on by itself after faults that a new attempt mends."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from rltui.cli.output import add_json, add_run, print_json, print_lines, talk
from rltui.errors import UsageError
from rltui.onnode.hands_off import DECISION_S
from rltui.service.all_clusters import open_run
from rltui.service.hands_off_rules import Policy, Record
from rltui.service.hands_off_switch import now_of, records_of, switch_off, switch_on, told_of
from rltui.service.script_changes import typed
from rltui.watch.snapshots import RunSummary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the run, and which way the switch goes."""
    add_run(parser)
    parser.add_argument("limits", nargs="*", metavar="limit=value", help="guard rails, such as max_restarts=5")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--off", action="store_true", help="start nothing again from now on; what runs goes on")
    way.add_argument("--status", action="store_true", help="only say whether it is on, and what was decided so far")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Switch hands-off mode of a run on or off, or say what it did."""
    with open_run(options.cluster, options.run) as (context, summary):
        if options.off:
            talk(switch_off(context, summary))
        elif not options.status:
            talk(switch_on(context, summary, policy_of_words(options.limits)))
        told, records = told_of(context, summary), records_of(context, summary)
        if options.json:
            print_json({"schema": 1, "run_id": summary.run_id, **_public(told), "decisions": records})
        elif options.status:
            print_lines(_lines(summary, told, records, now_of(context)))
    return 0


def policy_of_words(words: Sequence[str]) -> Policy:
    """A policy from ``key=value`` words.

    Raises:
        UsageError: A word is no guard rail, or its value none.
    """
    values: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        values[key] = value if key == "quiet_hours" else typed(value) if equals else None
    try:
        return msgspec.convert(values, Policy)
    except msgspec.ValidationError as error:
        known = ", ".join(f"{name}={value}" for name, value in msgspec.to_builtins(Policy()).items())
        raise UsageError(f"{' '.join(words)}: {error}.", f"The guard rails and their defaults: {known}.") from None


def _public(told: dict[str, Any]) -> dict[str, Any]:
    return {key: told.get(key) for key in ("on", "since", "stopped", "policy")}


def _lines(run: RunSummary, told: dict[str, Any], records: Sequence[Record], now: float) -> Iterator[str]:
    state = "on" if told.get("on") else f"off ({told['stopped']})" if told.get("stopped") else "off"
    yield f"{run.run_id}: hands-off mode is {state}"
    for one in records:
        change = " ".join([*one.overrides, *(f"--exclude {node}" for node in one.exclude)])
        after = f" with {change}" if change else ""
        yield f"  after attempt {one.attempt}, step {one.step}: {one.what}{after}: {one.cause}: {one.why}"
    is_over = not run.is_live and run.state != "finished"
    if told.get("on") and is_over and run.attempt not in {one.attempt for one in records}:
        still = run.end is not None and now - run.end.at < DECISION_S
        words = "it is being decided" if still else f"nothing was decided; rltui fix {run.run_id} is for you"
        yield f"  after attempt {run.attempt}: {words}"
