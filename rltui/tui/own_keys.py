"""The user's own keys: ``keys.yaml`` of the settings' folder, laid over the tables of the screens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rltui.paths import config_dir
from rltui.tui.keys import Key, KeyTable

FILE_NAME = "keys.yaml"
EVERYWHERE = "everywhere"
"""What stands for every screen that has an action; a screen's own words win."""

FIXED = ("confirm",)
"""Screens whose keys stay: what a yes is typed with is written beside it."""

LARGEST = 1 << 16

OwnKeys = dict[str, dict[str, tuple[str, ...]]]
"""Screen → action → its keys; none: the action has no key."""


class Read(NamedTuple):
    """What the file says, and what of it cannot be used."""

    keys: OwnKeys
    problems: tuple[str, ...] = ()


def keys_file() -> Path:
    """The file of the user's own keys."""
    return config_dir() / FILE_NAME


@cache
def read_own_keys(file: Path) -> Read:
    """Read the file; one that is not there says nothing, and one that cannot be read is a problem and says nothing."""
    try:
        with file.open(encoding="utf-8") as stream:
            text = stream.read(LARGEST)
    except FileNotFoundError:
        return Read({})
    except (OSError, UnicodeDecodeError) as error:
        return Read({}, (f"{file} is ignored: it cannot be read ({error})",))
    from rltui.layout.document import parse
    from rltui.layout.errors import LayoutError

    try:
        values = parse(text, str(file), "its form is screen: {action: key}").values if text.strip() else {}
    except LayoutError as error:
        return Read({}, (f"{file} is ignored: {error.problems[0].message}",))
    return _checked(values)


def _checked(values: Mapping[str, object]) -> Read:
    """What has the form screen → action → a key or a list of keys."""
    found: OwnKeys = {}
    problems: list[str] = []
    for screen, actions in values.items():
        if not isinstance(actions, dict):
            problems.append(f"{screen}: its form is {screen}: {{action: key}}")
            continue
        for action, named in actions.items():
            names = tuple(str(name) for name in named) if isinstance(named, list) else (str(named),)
            unknown = [name for name in names if not _is_key(name)]
            if unknown:
                problems.append(f"{screen}.{action}: {_no_key(unknown[0])}")
            else:
                found.setdefault(str(screen), {})[str(action)] = names
    return Read(found, tuple(problems))


def _is_key(name: str) -> bool:
    return (len(name) == 1 and name.isprintable()) or name in _names()


@cache
def _names() -> frozenset[str]:
    from textual.keys import Keys

    return frozenset(key.value for key in Keys if key.value.replace("+", "").replace("_", "").isalnum()) - {"ctrl+c"}


def _no_key(name: str) -> str:
    import difflib

    if name == "ctrl+c":
        return "ctrl+c is for leaving, wherever one is"
    near = difflib.get_close_matches(name, _names(), n=1)
    return f"{name[:40]!r} is no key" + (f", did you mean {near[0]}?" if near else ": one character, f1, ctrl+x …")


def with_own_keys(screen: str, table: KeyTable, own: OwnKeys) -> tuple[KeyTable, tuple[str, ...]]:
    """The table of a screen with the user's keys, and what of these cannot be used.

    A key that the user gives to an action is taken away from the one that had it, which is said where it is left
    without any; of two actions that the user gives one key, the first keeps it.
    """
    if screen in FIXED:
        return table, ()
    wanted = {
        action: names
        for scope in (screen, EVERYWHERE)  # its own first: of two actions with one key the first keeps it
        for action, names in own.get(scope, {}).items()
        if action in _ids(table) and (scope == screen or action not in own.get(screen, {}))
    }
    if not wanted:
        return table, ()
    problems: list[str] = []
    owner: dict[str, str] = {}
    for action, names in wanted.items():
        for name in names:
            if name in owner:
                problems.append(f"{screen}: {name} is given to {owner[name]} and to {action}; {owner[name]} keeps it")
            owner.setdefault(name, action)

    def bound(key: Key) -> Key:
        names = wanted.get(key.id, key.keys)
        left = tuple(name for name in names if owner.get(name, key.id) == key.id)
        if names and not left and key.id not in wanted:
            problems.append(f"{screen}: {key.id} has no key any more, as {owner[names[0]]} has taken {names[0]}")
        return replace(key, keys=left)

    groups = tuple(group._replace(keys=tuple(map(bound, group.keys))) for group in table.groups)
    return replace(table, groups=groups), tuple(problems)


def _ids(table: KeyTable) -> set[str]:
    return {key.id for key in table.keys}


def bound(screen: str, table: KeyTable) -> KeyTable:
    """The table of a screen with the user's keys."""
    return with_own_keys(screen, table, read_own_keys(keys_file()).keys)[0]


def all_problems(tables: Mapping[str, KeyTable]) -> tuple[str, ...]:
    """Everything in the file that is ignored, or that leaves an action without a key.

    Args:
        tables: The table of every screen, as it is without the file.
    """
    read = read_own_keys(keys_file())
    problems = [*read.problems, *_unknown(read.keys, tables)]
    for screen, table in tables.items():
        problems += with_own_keys(screen, table, read.keys)[1]
    return tuple(dict.fromkeys(problems))


def _unknown(own: OwnKeys, tables: Mapping[str, KeyTable]) -> Sequence[str]:
    """Names of screens and actions that there are not, with the nearest right one."""
    from rltui.layout.convert import nearest

    everything = set().union(*map(_ids, tables.values()))
    problems = []
    for screen, actions in own.items():
        if screen in FIXED:
            problems.append(f"the keys of {screen} stay as they are")
            continue
        if screen != EVERYWHERE and screen not in tables:
            problems.append(f"there is no screen {screen[:40]!r}: {nearest(screen, [EVERYWHERE, *tables])}")
            continue
        known = everything if screen == EVERYWHERE else _ids(tables[screen])
        problems += [
            f"{screen} has no action {action[:40]!r}: {nearest(action, known)}"
            for action in actions
            if action not in known
        ]
    return problems
