"""``rltui mem``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.cli.output import add_json, print_json, print_lines
from rltui.cli.sources import add_source, load, said
from rltui.memory.bars import lines
from rltui.memory.layouts import as_json, estimate_layout

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_source(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table; 1 where a role does not fit its card."""
    estimate = estimate_layout(load(options.layout, options.overrides, said(options)).layout)
    if options.json:
        print_json(as_json(estimate))
    else:
        print_lines(lines(estimate))
    return 1 if any(role.verdict == "no" for role in estimate.roles) else 0
