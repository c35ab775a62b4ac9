"""``rltui demo``: watch a tiny model learn on this machine."""

from __future__ import annotations

import argparse

from rltui.cli.cockpit import has_screen, open_cockpit
from rltui.cli.launch import consent
from rltui.cli.output import talk
from rltui.layout.presets import FIRST
from rltui.service.context import open_context
from rltui.service.launch import launch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--engine", choices=("hf", "vllm"), default="hf", help="what generates (default: hf)")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask before running on a login node")
    parser.add_argument("--no-screen", action="store_true", help="report in plain lines instead of opening the cockpit")


def run(options: argparse.Namespace) -> int:
    """Launch the tiny run, or find the one that is going on, and watch it."""
    with open_context() as context:
        live = [run for run in context.runs().runs if run.is_live and run.name == "grpo-tiny"]
        if live:
            run_id = live[0].run_id
            talk(f"{run_id} is {live[0].state} already; opening it")
        else:
            consent(context.cluster.profile, "the demo", given=options.yes)
            run_id = launch(context, FIRST, [f"roles.rollout.engine={options.engine}", *options.overrides]).run_id
            talk(f"launched {run_id}")
        if options.no_screen or not has_screen():
            from rltui.cli.follow import follow

            return follow(context, run_id, as_json=False)
    return open_cockpit(f"{run_id}@{context.name}")
