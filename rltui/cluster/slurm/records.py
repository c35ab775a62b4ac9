"""How answers of Slurm are cut: into records that survive any text in their fields, and scontrol's into pairs.

Job names may hold ``|``, newlines and escapes, so fields end with a mark made anew for each call, which nobody can have
put into a name, and records are counted off by their number of fields, not by lines.

Tools are run with ``SLURM_TIME_FORMAT=%s`` and ``TZ=UTC``: one that does not honour the first writes ISO times, which
are then in UTC whatever the cluster's zone is.
"""

from __future__ import annotations

import calendar
import math
import re
import secrets
import time
from functools import lru_cache

from rltui.layout.time_limit import duration_s

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
    # behind the last mark stands a line's end, or what was cut off
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


NEVER = frozenset(
    {"", "N/A", "Unknown", "None", "NONE", "(null)", "UNLIMITED", "INVALID", "NOT_SET", "Partition_Limit"}
)
"""Words for a time or duration that is not there."""

_FRACTION = re.compile(r"(?<=\d)\.\d+\Z", re.ASCII)
_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)
_LATEST = 1 << 40


def read_time(text: str) -> float:
    """Return epoch seconds, 0 where ``text`` is no time (``N/A``, ``Unknown``, the estimate 0)."""
    seconds = whole(text)
    if seconds is not None:
        return float(seconds) if seconds < _LATEST else 0.0
    if not _ISO.match(text.strip()):
        return 0.0  # quick: most of what is no number is N/A
    try:
        return float(calendar.timegm(time.strptime(text.strip()[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return 0.0


@lru_cache(1024)
def read_duration_s(text: str) -> float | None:
    """Return the seconds of ``D-HH:MM:SS``, ``HH:MM:SS``, ``MM:SS``, ``D-HH`` or minutes; None for no limit."""
    seconds = duration_s(_FRACTION.sub("", text.strip()))
    return None if seconds is None else float(seconds)


def write_duration(seconds: float) -> str:
    """Return a time limit as Slurm reads it without doubt: ``D-HH:MM:SS``, rounded up to a second.

    Raises:
        ValueError: It is not over 0, or over 68 years.
    """
    if not 0 < seconds < 1 << 31:
        raise ValueError(f"{seconds} s is no time limit")
    days, rest = divmod(math.ceil(seconds), 86400)
    return f"{days}-{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
