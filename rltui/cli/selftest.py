"""``rltui selftest``."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import msgspec
from msgspec import structs

from rltui.cli.launch import consent
from rltui.cli.output import add_cluster, add_json, columns, print_json, print_lines, talk
from rltui.cluster.prompts import TerminalPrompter
from rltui.errors import RltuiError, UsageError
from rltui.layout.schema import Layout
from rltui.service.all_clusters import open_clusters
from rltui.service.context import Context, open_context
from rltui.service.hands_off_switch import is_over
from rltui.service.launch import launch
from rltui.service.selftest import PRESET, Asked, Result, keep, layout_of, read_result, result_json, title, words_of
from rltui.watch.snapshots import RunSummary

GLYPHS = {"ok": "✓", "failed": "✗", "skipped": "–"}
POLL_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("settings", nargs="*", metavar="key=value", help="such as slurm.partition=debug")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="nodes (1); 2 also try what is between them")
    parser.add_argument("--gpus", type=int, metavar="G", help="cards of each node (all of them); 0: on CPU")
    parser.add_argument("--gpu", default="", metavar="NAME", help="the kind of card, where the profile does not say")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PART", help="only this part; may be repeated, or have commas"
    )
    parser.add_argument("--model", default="", metavar="PATH", help="a model's folder there (else a tiny random one)")
    parser.add_argument("--thorough", action="store_true", help="larger sizes, half an hour instead of ten minutes")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be submitted and tried")
    parser.add_argument("--no-wait", action="store_true", help="submit it and leave; `rltui selftest --of RUN` later")
    parser.add_argument("--of", default="", metavar="RUN", help="show what an earlier self-test found, and keep it")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask before running on a login node")
    add_cluster(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Submit the self-test and print what it finds; 0 where no part failed, 1 where one did."""
    if options.of:
        return _earlier(options)
    parts = tuple(name for word in options.only for name in word.split(",") if name)
    asked = structs.replace(msgspec.convert(options, Asked, from_attributes=True), parts=parts)
    if asked.nodes < 1 or (asked.gpus or 0) < 0:
        raise UsageError("--nodes is at least 1, --gpus at least 0.", "rltui selftest --nodes 2 --gpus 4")
    with open_context(options.cluster, TerminalPrompter()) as context:
        profile = context.cluster.profile
        if options.dry_run:
            _preview(layout_of(asked, profile), context.name, as_json=options.json)
            return 0
        consent(profile, "the self-test", given=options.yes)
        run_id = launch(context, PRESET, words_of(asked, profile)).run_id
        talk(f"launched {run_id} on {context.name}  (rltui attach {run_id}; ctrl+c leaves it running)")
        if options.no_wait:
            print_json({"schema": 1, "run_id": run_id}) if options.json else print(run_id)
            return 0
        return _report(context, _awaited(context, run_id, quiet=options.json), options)


def _preview(layout: Layout, cluster: str, *, as_json: bool) -> None:
    assert layout.selftest is not None
    hardware, parts = layout.hardware, layout.selftest.wanted
    if as_json:
        told = [{"part": part.name, "summary": part.summary, "deadline_s": part.deadline_s} for part in parts]
        print_json({"schema": 1, "cluster": cluster, "hardware": hardware, "parts": told, "layout": layout})
        return
    kind = "CPU slots" if hardware.on_cpu else hardware.gpu
    print(f"a job of at most {layout.slurm.time} on {cluster}: {hardware.nodes} × {hardware.gpus_per_node} {kind}")
    rows = [(part.name, f"{part.deadline_s:.0f} s", part.summary) for part in parts]
    print_lines(columns(("PART", "AT MOST", "WHAT IT TRIES"), rows, right=frozenset({1})))


def _earlier(options: argparse.Namespace) -> int:
    with open_clusters("" if options.cluster == "local" else options.cluster) as clusters:
        context, found = clusters.find(options.of)
        return _report(context, found, options)


def _awaited(context: Context, run_id: str, *, quiet: bool) -> RunSummary:
    """The run when it is over; what it finds meanwhile is said as it comes."""
    said = 0
    stage = ""
    while True:
        found = context.find(run_id)
        result = read_result(context, found)
        for row in result.rows[said:] if result is not None and not quiet else ():
            talk(f"{GLYPHS.get(row.verdict, '?')} {title(row)}: {row.figure}")
            said += 1
        if is_over(context, found):
            return found
        if result is None and found.stage.stage != stage:
            stage = found.stage.stage
            talk(f"  {stage} {found.stage.detail}".rstrip())
        time.sleep(POLL_S)


def _report(context: Context, found: RunSummary, options: argparse.Namespace) -> int:
    """Print the table, and keep what ``plan`` takes."""
    result = read_result(context, found)
    if result is None:
        reason = found.end.reason if found.end is not None else f"it is {found.state}"
        raise RltuiError(f"{found.run_id} has found nothing: {reason}.", f"`rltui why {found.run_id}` says more.")
    kept = keep(context, found, result)
    missing = "" if found.end is not None and found.state in ("finished", "failed") else f"it is {found.state}"
    bad = [row for row in result.rows if row.verdict == "failed"]
    if options.json:
        told: dict[str, Any] = {"schema": 1, "run_id": found.run_id, "cluster": context.name, "state": found.state}
        print_json({**told, **result_json(result), "plan": kept})
    else:
        _print(result, found.run_id)
        talk(f"{len(bad)} failed, {sum(row.verdict == 'skipped' for row in result.rows)} skipped, "
             f"{len(result.parts)} parts tried{f'; {missing}' if missing else ''}")  # fmt: skip
        talk(kept)
    return 1 if bad or missing else 0


def _print(result: Result, run_id: str) -> None:
    """The table, and what to do about each failure below it, whole."""
    rows = [(f"{GLYPHS.get(row.verdict, '?')} {row.verdict}", title(row), row.figure) for row in result.rows]
    print_lines(columns(("VERDICT", "PART", "FIGURE"), rows))
    for row in result.rows:
        if row.remedy:
            sys.stdout.write(f"\n✗ {title(row)}" + f": {row.figure}\n  do: {row.remedy.replace('RUN', run_id)}\n")
