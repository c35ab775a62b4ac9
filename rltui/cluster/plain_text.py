"""Making text from programs and files harmless: what is shown holds no control characters."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, erasing
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x00-\x1f\x7f-\x9f]*(?:\x07|\x1b\\|\x9c)"  # OSC, DCS …: titles, clipboard
    r"|\x1b[ -/]*[0-~]"
)

_ODD = re.compile(r"[^ -~]+")


def plain(text: str) -> str:
    """Return ``text`` as printable characters in one line.

    Escape sequences (ECMA-48), all other control and format characters (C0, C1, bidirectional controls), lone
    surrogates and unassigned characters are removed; line ends, tabs and odd spaces become spaces.
    """
    if text.isprintable():
        return text
    # most of what is odd in logs is a few characters among many plain ones
    return _ODD.sub(_printable, _ESCAPES.sub("", text))


def _printable(odd: re.Match[str]) -> str:
    text = odd[0]
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "" for letter in text)


def printable(text: str, limit: int = 300) -> str:
    """Return at most ``limit`` characters of a server's words, as ``plain`` has them, for a message."""
    return plain(text[:limit]).strip()
