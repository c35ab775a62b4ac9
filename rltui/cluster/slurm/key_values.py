"""The ``Key=value`` text of scontrol, where values hold blanks and, in free text, whatever looks like a key."""

from __future__ import annotations

import re

_KEY = re.compile(r"(?:^|(?<=\s))([A-Z][A-Za-z0-9/:&]{0,40})=")


def read_entities(text: str, first_key: str) -> list[dict[str, str]]:
    """Return the entities in ``text`` (nodes, partitions, jobs), each of which begins a line with ``first_key=``."""
    parts = re.split(rf"(?m)^(?={re.escape(first_key)}=)", text)
    return [read_pairs(part) for part in parts if part.startswith(f"{first_key}=")]


def read_pairs(text: str, free: str = "Reason") -> dict[str, str]:
    """Return the pairs in the text of one entity.

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
