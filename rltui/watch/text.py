"""Making text from files and programs harmless: what reaches a terminal or JSON holds no control characters."""

from __future__ import annotations

from typing import Any

from rltui.cluster.plain_text import plain as plain

LINE_LIMIT = 8192
"""Longest line in characters; a longer one is cut, and ends in an ellipsis."""


def plain_line(raw: bytes) -> str:
    """Return one line of a log as plain text of at most ``LINE_LIMIT`` characters.

    Of a progress bar, which returns to the line's start again and again, the last state is kept. Bytes that are not
    UTF-8 become U+FFFD.
    """
    states = [state for state in raw.split(b"\r") if state.strip()]
    # a character has at most four bytes, and what is cut is only looked at to see that something is
    text = plain(states[-1][: 8 * LINE_LIMIT].decode("utf-8", "replace")) if states else ""
    return text if len(text) <= LINE_LIMIT else text[: LINE_LIMIT - 1] + "…"


def plain_value(value: Any) -> Any:
    """Return a value read from JSON with every string in it, keys too, made plain."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(str(key)): plain_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    return value
