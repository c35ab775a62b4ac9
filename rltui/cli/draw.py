"""``rltui draw``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.cli.output import print_lines
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.placement.draw import draw
from rltui.placement.simulate import place

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("layout", metavar="PRESET|FILE")
    parser.add_argument("overrides", nargs="*", metavar="key=value")


def run(options: argparse.Namespace) -> int:
    """Print the picture."""
    layout = load_layout(resolve(options.layout), options.overrides).layout
    placement = place(layout)
    print_lines(draw(layout, placement))
    return 1 if placement.homeless else 0
