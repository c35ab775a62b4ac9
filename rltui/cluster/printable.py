"""Words of a server, made harmless and short before they reach a message."""

from __future__ import annotations

from rltui.cluster.plain_text import plain


def printable(text: str, limit: int = 300) -> str:
    """Return at most ``limit`` characters of ``text`` in one line, without control characters."""
    return plain(text[:limit]).strip()
