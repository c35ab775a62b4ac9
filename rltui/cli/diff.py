"""``rltui diff``: say in which keys two layouts differ."""

from __future__ import annotations

import argparse

from rltui.cli.output import add_json, answer, columns
from rltui.cli.sources import add_open, load, parted, said
from rltui.errors import UsageError
from rltui.layout.diff import diff, setting_text

WIDEST = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="+", metavar="PRESET|FILE|SCRIPT|key=value", help="two layouts, or one and what to change in it"
    )
    add_open(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the keys that differ; overrides apply to the second layout."""
    sources, overrides = parted(options.words)
    if len(sources) not in (1, 2) or (len(sources) == 1 and not overrides):
        raise UsageError(
            "Name two layouts, or one layout and overrides.",
            "rltui diff verl-ppo/ppo-1x4-standard verl-ppo/ppo-1x4-split",
        )
    a = load(sources[0], (), said(options)).layout
    b = load(sources[-1], overrides, said(options)).layout
    found = diff(a, b)
    rows = [(each.key, setting_text(each.a, WIDEST), setting_text(each.b, WIDEST)) for each in found]
    told = {"a": sources[0], "b": sources[-1], "overrides": overrides, "differences": found}
    answer(options, told, columns(("KEY", "A", "B"), rows) if rows else ())
    return 0
