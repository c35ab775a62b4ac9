"""The runs with the highest reward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rltui.api as rltui

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--last", type=int, default=5, metavar="N", help="how many (default: 5)")


def run(options: argparse.Namespace) -> int:
    """Print them; returns the exit code."""
    with rltui.open() as session:
        runs = [one for one in session.runs() if one.reward is not None]
    for one in sorted(runs, key=lambda found: found.reward, reverse=True)[: options.last]:
        print(f"{one.reward:8.3f}  {one.run_id}")
    return 0
