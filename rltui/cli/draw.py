"""``rltui draw``: draw who sits on which GPU."""

from __future__ import annotations

import argparse

from rltui.cli.output import add_json, answer
from rltui.cli.sources import add_source, load, said
from rltui.placement.draw import draw
from rltui.placement.result import as_json
from rltui.placement.simulate import place


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the picture; 1 where a role finds no place."""
    layout = load(options.layout, options.overrides, said(options)).layout
    placement = place(layout)
    lines = draw(layout, placement)
    answer(options, {"layout": layout.name, "placement": as_json(placement), "drawing": lines}, lines)
    return 1 if placement.unplaced else 0
