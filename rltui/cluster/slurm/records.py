"""Framing: records that survive any text in their fields.

Job names may hold ``|``, newlines and escapes, so fields end with a mark made anew for each call, which nobody can have
put into a name, and records are counted off by their number of fields, not by lines.
"""

from __future__ import annotations

import secrets

FIELDS_LIMIT = 4_000_000
"""Fields of one answer; more is no answer of Slurm."""


def new_mark() -> str:
    """A fresh end of field. It begins with a letter-free sign, since a digit would be read as a width by ``-O``."""
    return f"^{secrets.token_hex(6)}^"


def split_records(text: str, mark: str, fields: int) -> list[list[str]]:
    """Return the records in ``text``; a torn last one is left out.

    What stands in front of a record's first field in lines of its own (``CLUSTER: name``, a warning) is dropped.
    """
    pieces = text.split(mark, FIELDS_LIMIT)[:-1]
    whole = len(pieces) - len(pieces) % fields
    rows = [pieces[begin : begin + fields] for begin in range(0, whole, fields)]
    for row in rows:
        row[0] = row[0].rpartition("\n")[2].strip()
    return rows


def whole(text: str) -> int | None:
    """Return a whole number of at most 15 ASCII digits, or None."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None
