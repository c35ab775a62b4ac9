"""``rltui diff``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.cli.output import add_json, columns, print_json, print_lines
from rltui.errors import UsageError
from rltui.layout.diff import ABSENT, diff
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve

if TYPE_CHECKING:
    import argparse
    from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "words", nargs="+", metavar="PRESET|FILE|key=value", help="two layouts, or one and what to change in it"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the keys that differ; overrides apply to the second layout."""
    overrides = [word for word in options.words if "=" in word and not word.endswith((".yaml", ".yml"))]
    sources = [word for word in options.words if word not in overrides]
    if len(sources) not in (1, 2) or (len(sources) == 1 and not overrides):
        raise UsageError(
            "Name two layouts, or one layout and overrides.",
            "rltui diff verl-ppo/ppo-1x4-standard verl-ppo/ppo-1x4-split",
        )
    a = load_layout(resolve(sources[0])).layout
    b = load_layout(resolve(sources[-1]), overrides).layout
    found = diff(a, b)
    if options.json:
        print_json({"schema": 1, "a": sources[0], "b": sources[-1], "overrides": overrides, "differences": found})
    elif found:
        print_lines(columns(("KEY", "A", "B"), [(each.key, _text(each.a), _text(each.b)) for each in found]))
    return 0


def _text(value: Any) -> str:
    if value is None or value == "":
        return ABSENT
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
