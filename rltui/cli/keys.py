"""``rltui keys``."""

from __future__ import annotations

import textwrap
from collections import Counter
from importlib import import_module
from typing import TYPE_CHECKING

from rltui.cli.output import add_json, print_json, print_lines
from rltui.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from rltui.tui.keys import KeyGroup, KeyTable

DIALOGS = {"confirm": "ConfirmScreen", "pick": "PickScreen", "columns": "ColumnsScreen"}
"""Screens that only answer; the others are in the cockpit's table of places."""

KEYS_WIDTH, WIDTH = 22, 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("screen", nargs="?", default="", metavar="SCREEN", help="only this one: runs, run, launch …")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print all keys of the cockpit, screen by screen, from the table that the cockpit itself reads."""
    tables = _tables()
    if options.screen and options.screen not in tables:
        raise UsageError(f"There is no screen {options.screen[:40]!r}.", f"There are {', '.join(tables)}.")
    shown = {name: table for name, table in tables.items() if options.screen in ("", name)}
    if options.json:
        print_json({"schema": 1, "screens": {name: list(_as_json(table)) for name, table in shown.items()}})
    else:
        print_lines(_lines(shown))
    return 0


def _tables() -> dict[str, KeyTable]:
    from rltui.tui.places import PLACES

    screens = {**PLACES, **DIALOGS}
    return {name: getattr(import_module(f"rltui.tui.screens.{name}"), kind).KEYS for name, kind in screens.items()}


def _as_json(table: KeyTable) -> Iterator[dict[str, object]]:
    for group in table.groups:
        for key in group.keys:
            yield {"id": key.id, "keys": key.keys, "group": group.title, "help": key.help}


def _lines(tables: Mapping[str, KeyTable]) -> Iterator[str]:
    """Each screen's own keys, then the groups that several have, once; one that two have stands with the first."""
    times = Counter(group.title for table in tables.values() for group in table.groups)
    shared: dict[str, KeyGroup] = {}
    told: set[str] = set()
    for name, table in tables.items():
        yield f"{name}"
        also = [group.title for group in table.groups if times[group.title] > 2 or group.title in told]
        for group in table.groups:
            if times[group.title] > 2:
                shared[group.title] = group
            elif group.title not in told:
                told.add(group.title)
                yield from _entries(group)
        yield from [f"  and: {', '.join(also)}"] if also else []
        yield ""
    for title, group in shared.items():
        yield title
        yield from _entries(group)
        yield ""


def _entries(group: KeyGroup) -> Iterator[str]:
    from rltui.tui.glyphs import ASCII
    from rltui.tui.keys import shown

    for key in group.keys:
        names = "  ".join(shown(name, ASCII) for name in key.keys)
        first, *more = textwrap.wrap(key.help, WIDTH - KEYS_WIDTH)
        yield f"  {names:<{KEYS_WIDTH - 2}}{first}"
        yield from (f"{'':<{KEYS_WIDTH}}{line}" for line in more)
