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

NEVER = frozenset(
    {"", "N/A", "Unknown", "None", "NONE", "(null)", "UNLIMITED", "INVALID", "NOT_SET", "Partition_Limit"}
)
"""Words for a time or duration that is not there."""

_DURATION = re.compile(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,2}))?(?::(\d{1,2}))?(?:\.\d+)?\Z", re.ASCII)
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
    text = text.strip()
    match = _DURATION.match(text)
    if text in NEVER or match is None:
        return None
    days = int(match[1] or 0)
    first, second, third = int(match[2]), match[3], match[4]
    if match[1] is not None:
        hours, minutes, seconds = first, int(second or 0), int(third or 0)
    elif third is not None:
        hours, minutes, seconds = first, int(second), int(third)
    else:
        hours, minutes, seconds = 0, first, int(second or 0)
    return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)


def write_duration(seconds: float) -> str:
    """Return a time limit as Slurm reads it without doubt: ``D-HH:MM:SS``, rounded up to a second.

    Raises:
        ValueError: It is not over 0, or over 68 years.
    """
    if not 0 < seconds < 1 << 31:
        raise ValueError(f"{seconds} s is no time limit")
    days, rest = divmod(math.ceil(seconds), 86400)
    return f"{days}-{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
