"""What differs between two layouts, key by key, with every default filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rltui.layout.schema import Layout

ABSENT = "–"


class Difference(Struct, frozen=True):
    """One key whose values differ; None where the layout has no such key (or it is empty)."""

    key: str
    a: Any
    b: Any


def diff(a: Layout, b: Layout) -> tuple[Difference, ...]:
    """The dotted keys whose values differ, in the order of the schema; lists are compared whole."""
    left, right = dict(_flat("", msgspec.to_builtins(a))), dict(_flat("", msgspec.to_builtins(b)))
    keys = [*left, *(key for key in right if key not in left)]
    return tuple(Difference(key, left.get(key), right.get(key)) for key in keys if left.get(key) != right.get(key))


def _flat(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _flat(f"{key}.{name}" if key else name, item)
    else:
        yield key, value
