"""What differs between two layouts, key by key, with every default filled in."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from rltui.layout.schema import Layout

ABSENT = "–"


class Difference(Struct, frozen=True):
    """One key whose values differ; None where the layout has no such key (or it is empty)."""

    key: str
    a: Any
    b: Any


def diff(a: Layout, b: Layout) -> tuple[Difference, ...]:
    """The dotted keys whose values differ, in the order of the schema; lists are compared whole."""
    sides = [flat(msgspec.to_builtins(a)), flat(msgspec.to_builtins(b))]
    return tuple(Difference(key, *values) for key, values in differing(sides))


def differing(sides: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The keys whose values are not the same on all sides, as they come, with the value of each; None: it has none."""
    for key in dict.fromkeys(key for side in sides for key in side):
        values = tuple(side.get(key) for side in sides)
        if any(value != values[0] for value in values):
            yield key, values


def flat(values: dict[str, Any]) -> dict[str, Any]:
    """The values that are no mappings, by dotted key."""
    return dict(_flat("", values))


def _flat(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _flat(f"{key}.{name}" if key else name, item)
    else:
        yield key, value


def change_lines(changes: Iterable[Difference]) -> list[str]:
    """A ``-`` and a ``+`` line for each key, as previews show them."""
    return [line for one in changes for line in (f"- {one.key}: {_written(one.a)}", f"+ {one.key}: {_written(one.b)}")]


def _written(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return ABSENT if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def setting_text(value: Any, widest: int = sys.maxsize) -> str:
    """A setting's value in a cell of at most ``widest`` characters and one line, as a layout would have it."""
    if value is None or value == "":
        return ABSENT
    if isinstance(value, list | tuple):
        value = f"[{', '.join(map(setting_text, value))}]"
    text = (str(value).lower() if isinstance(value, bool) else str(value)).replace("\n", "\\n")
    return text if len(text) <= widest else f"{text[: widest - 3]}..."
