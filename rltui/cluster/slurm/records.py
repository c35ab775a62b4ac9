"""How answers of Slurm are cut: into records that survive any text in their fields, and scontrol's into pairs.

Job names may hold ``|``, newlines and escapes, so fields end with a mark made anew for each call, which nobody can have
put into a name, and records are counted off by their number of fields, not by lines.
"""

from __future__ import annotations

import re
import secrets

_KEY = re.compile(r"(?:^|(?<=\s))([A-Z][A-Za-z0-9/:&]{0,40})=")
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


def read_entities(text: str, first_key: str) -> list[dict[str, str]]:
    """Return the entities in scontrol's ``text`` (nodes, partitions, jobs), which begin lines with ``first_key=``."""
    parts = re.split(rf"(?m)^(?={re.escape(first_key)}=)", text)
    return [read_pairs(part) for part in parts if part.startswith(f"{first_key}=")]


def read_pairs(text: str, free: str = "Reason") -> dict[str, str]:
    """Return the pairs in scontrol's text of one entity, where values hold blanks.

    The first of two equal keys counts, and ``free``, a text that people write and that scontrol puts last, takes the
    rest: so nobody's words pass for a key.
    """
    pairs: dict[str, str] = {}
    matches = list(_KEY.finditer(text))
    for match, following in zip(matches, [*matches[1:], None], strict=True):
        if match[1] == free:
            pairs.setdefault(free, text[match.end() :].strip())
            break
        value = text[match.end() : following.start() if following else None].strip()
        pairs.setdefault(match[1], value)
    return pairs
