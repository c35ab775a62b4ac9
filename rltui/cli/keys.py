"""``rltui keys``: all keys of the cockpit, screen by screen."""

from __future__ import annotations

import argparse
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rltui.cli.output import add_json, answer, talk
from rltui.errors import UsageError

if TYPE_CHECKING:
    from rltui.tui.keys import KeyGroup, KeyTable

KEYS_WIDTH, WIDTH = 22, 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("screen", nargs="?", default="", metavar="SCREEN", help="only this one: runs, run, launch …")
    parser.add_argument("--check", action="store_true", help="only say what of your keys.yaml cannot be used")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print all keys of the cockpit, screen by screen, from the table that the cockpit itself reads."""
    from rltui.tui.own_keys import all_problems, bound, keys_file
    from rltui.tui.places import key_tables

    usual = key_tables()
    problems = all_problems(usual)
    if options.check:
        answer(options, {"problems": problems}, problems)
        return 1 if problems else 0
    tables = {name: bound(name, table) for name, table in usual.items()}
    if options.screen and options.screen not in tables:
        raise UsageError(f"There is no screen {options.screen[:40]!r}.", f"There are {', '.join(tables)}.")
    shown = {name: table for name, table in tables.items() if options.screen in ("", name)}
    screens = {name: list(_as_json(table)) for name, table in shown.items()}
    answer(options, {"screens": screens, "problems": problems}, _lines(shown))
    for problem in () if options.json else problems:
        talk(f"{keys_file().name}: {problem}")
    return 0


def _as_json(table: KeyTable) -> Iterator[dict[str, object]]:
    for group in table.groups:
        for key in group.keys:
            yield {"id": key.id, "keys": key.keys, "group": group.title, "help": key.help}


def _lines(tables: Mapping[str, KeyTable]) -> Iterator[str]:
    """Each screen's own keys, then the groups that several have, once; one that two have stands with the first."""
    times = Counter(group for table in tables.values() for group in table.groups)
    shared: dict[KeyGroup, None] = {}
    told: set[KeyGroup] = set()
    for name, table in tables.items():
        yield f"{name}"
        also = [group.title for group in table.groups if times[group] > 2 or group in told]
        for group in table.groups:
            if times[group] > 2:
                shared[group] = None
            elif group not in told:
                told.add(group)
                yield from _entries(group)
        yield from [f"  and: {', '.join(also)}"] if also else []
        yield ""
    for group in shared:
        yield group.title
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
