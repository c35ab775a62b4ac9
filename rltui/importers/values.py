"""Values of a script that was only read: known text, or text with a hole where only a running shell could know."""

from __future__ import annotations

import re

HOLE = "\0"
"""Stands in a text for a part that is not known; scripts with a NUL byte are refused, so nothing else is one."""

HOLES = "\0@"
"""Begins what stands for the words of an array that is not known, with the array's name behind it."""

NODE = "\0node"
"""Begins what stands for the name of a node: one word that is not known, unlike what ``HOLE`` may be."""

_WHOLE = re.compile(r"[-+]?[0-9][0-9_]*\Z")
_TRUE = frozenset({"true", "yes", "1", "on"})
_FALSE = frozenset({"false", "no", "0", "off", "none", "null"})


def is_known(value: object) -> bool:
    """Whether ``value`` has no hole in it."""
    return not (isinstance(value, str) and HOLE in value)


def to_int(value: object) -> int | None:
    """``value`` as a whole number, or None where it is not one or not known."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if not isinstance(value, str):
        return None
    text = value.strip().strip("'\"")
    return int(text) if len(text) < 20 and _WHOLE.match(text) else None


def to_float(value: object) -> float | None:
    """``value`` as a number, or None."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and abs(number) < float("inf") else None


def to_bool(value: object) -> bool | None:
    """``value`` as a truth value, or None."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().strip("'\"").lower()
    return True if text in _TRUE else False if text in _FALSE else None


def to_text(value: object) -> str | None:
    """``value`` as text, or None where it is empty, not a scalar, not known, or not printable."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value).strip().strip("'\"")
    return text if text and is_known(text) and text.isprintable() else None


def printable(text: str) -> str:
    """``text`` in one line that is safe to show: holes, control characters and the like become ``?``."""
    return "".join(char if char.isprintable() else "?" for char in text)


def product(*factors: int | None) -> int | None:
    """The product, or None where a factor is not known."""
    result = 1
    for factor in factors:
        if factor is None:
            return None
        result *= factor
    return result


def total(*parts: int | None) -> int | None:
    """The sum, or None where a part is not known."""
    result = 0
    for part in parts:
        if part is None:
            return None
        result += part
    return result


def quotient(whole: int | None, part: int | None) -> int | None:
    """``whole / part`` where that is a whole number that is known; else None."""
    if whole is None or not part or whole % part:
        return None
    return whole // part
