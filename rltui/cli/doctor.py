"""``rltui doctor``: test every link to a cluster, and measure it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import msgspec

from rltui.cli.output import add_cluster_name, add_json, is_agreed, named_cluster, print_json, talk
from rltui.cluster.profiles import load_profiles
from rltui.cluster.prompts import TerminalPrompter
from rltui.errors import UsageError

if TYPE_CHECKING:
    from rltui.service.doctor_checks import Check

GLYPHS = {"ok": "✓", "warning": "!", "failed": "✗", "skipped": "–"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_cluster_name(parser)
    parser.add_argument("--nodes", action="store_true", help="also run a short job that looks around on a node")
    parser.add_argument("-y", "--yes", action="store_true", help="with --nodes: do not ask")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print each result as it is there."""
    from rltui.service.doctor import examine
    from rltui.service.doctor_checks import verdict

    profiles, name = load_profiles(), named_cluster(options)
    if not name:
        raise UsageError("Name a cluster.", f"Known: {', '.join(profiles.by_name)}.")
    profile = profiles.get(name)
    confirm = (lambda command: options.yes or _ask(command)) if options.nodes else None
    checks: list[Check] = []
    for check in examine(profile, TerminalPrompter(), confirm_nodes=confirm):
        checks.append(check)
        if not options.json:
            _print(check)
    code = verdict(checks)
    if options.json:
        print_json({"schema": 1, "cluster": profile.name, "ok": code == 0, "checks": msgspec.to_builtins(checks)})
    else:
        talk(_summary(checks))
    return code


def _print(check: Check) -> None:
    took = f"  [{_time(check.seconds)}]" if check.seconds >= 0.0005 else ""
    lines = [f"{GLYPHS[check.state]} {check.name:<12} {check.found}{took}"]
    lines += [f"{'':15}{label}: {text}" for label, text in (("why", check.cause), ("next", check.next_step)) if text]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def _summary(checks: list[Check]) -> str:
    counts = {state: sum(check.state == state for check in checks) for state in ("failed", "warning")}
    if not any(counts.values()):
        return "All is well."
    said = [f"{counts['failed']} failed"] * bool(counts["failed"])
    said += [f"{counts['warning']} to look at"] * bool(counts["warning"])
    return f"{', '.join(said)}."


def _ask(command: str) -> bool:
    if not sys.stdin.isatty():
        talk("Nobody is there to confirm the job; add --yes.")
        return False
    return is_agreed(f"  {command}\nRun this job?")
