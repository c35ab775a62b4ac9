"""Slurm's times and durations, both ways.

Tools are run with ``SLURM_TIME_FORMAT=%s`` and ``TZ=UTC``: one that does not honour the first writes ISO times, which
are then in UTC whatever the cluster's zone is.
"""

from __future__ import annotations

import calendar
import math
import re
import time
from functools import lru_cache

from rltui.cluster.slurm.records import whole
from rltui.layout.time_limit import time_limit_s

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
    seconds = time_limit_s(_FRACTION.sub("", text.strip()))
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
