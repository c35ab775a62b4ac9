"""Making text from files and programs harmless: what reaches a terminal or JSON holds no control characters."""

from __future__ import annotations

import re
from typing import Any

from rltui.cluster.plain_text import plain as plain
from rltui.errors import UsageError

LINE_LIMIT = 8192
"""Longest line in characters; a longer one is cut, and ends in an ellipsis."""

MOST_STATES = 64
"""Newest pieces of a line that returns to its start, of which the line is made."""

_MOVING = re.compile(r"[\W\d_]+")
"""What changes between two states of a progress bar: numbers, and the bar itself."""


def plain_line(raw: bytes) -> str:
    """Return one line of a log as plain text of at most ``LINE_LIMIT`` characters.

    A progress bar returns to the line's start again and again: of states that differ in numbers and bars the last is
    kept, and other words are not covered. Bytes that are not UTF-8 become U+FFFD.
    """
    kept: list[str] = []
    for state in [state for state in raw.split(b"\r") if state.strip()][-MOST_STATES:]:
        # a character has at most four bytes, and what is cut is only looked at to see that something is
        text = plain(state[: 8 * LINE_LIMIT].decode("utf-8", "replace"))
        if kept and _MOVING.sub("", kept[-1]) == _MOVING.sub("", text):
            kept[-1] = text
        else:
            kept.append(text)
    line = " ".join(kept)
    return line if len(line) <= LINE_LIMIT else line[: LINE_LIMIT - 1] + "…"


def is_literal(pattern: str) -> bool:
    """Whether a regular expression finds itself and nothing else, so that it can be looked for much faster."""
    return re.escape(pattern).replace(r"\ ", " ").replace(r"\-", "-") == pattern


def checked_pattern(pattern: str) -> str:
    """``pattern`` as it is.

    Raises:
        UsageError: It is no regular expression.
    """
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"The pattern cannot be read: {error}.") from error
    return pattern


def plain_value(value: Any) -> Any:
    """Return a value read from JSON with every string in it, keys too, made plain."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(str(key)): plain_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    return value
