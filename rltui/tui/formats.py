"""Numbers for people: rounded, short, and of a width that does not change while they do."""

from __future__ import annotations

import math
import time

MISSING = "–"

YEAR_10000_S = 253402300800.0
"""Seconds since the epoch from which a time is none: clocks end, and a file may say anything."""


def is_number(value: float | None) -> bool:
    """Whether there is a finite number to show."""
    return value is not None and math.isfinite(value)


def count(value: float | None) -> str:
    """A count or rate in at most five characters: ``412``, ``9.4k``, ``38.1k``, ``1.20M``."""
    if value is None or not math.isfinite(value):
        return MISSING
    size = abs(value)
    if size < 999.5:
        return f"{value:.0f}"
    for limit, unit in ((1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")):
        scaled = value / limit
        if abs(scaled) < 99.95:
            return f"{scaled:.1f}{unit}"
        if abs(scaled) < 999.5:
            return f"{scaled:.0f}{unit}"
    return f"{value:.0e}"


def duration(seconds: float | None) -> str:
    """A duration in at most five characters: ``41s``, ``3m10``, ``2h14``, ``5d03h``."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    total = max(0, int(seconds))
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m{total % 60:02d}"
    if total < 86400:
        return f"{total // 3600}h{total % 3600 // 60:02d}"
    days, hours = total // 86400, total % 86400 // 3600
    return f"{days}d{hours:02d}h" if days < 10 else f"{min(days, 9999)}d"


def moment(at: float) -> str:
    """A time by the clock of this machine's time zone, in eleven characters: ``11-23 06:28``."""
    return time.strftime("%m-%d %H:%M", time.localtime(at)) if 0 < at < YEAR_10000_S else MISSING


def ago(seconds: float) -> str:
    """How old a picture is: ``3s ago``."""
    return f"{duration(max(0.0, seconds))} ago"


def metric(value: float | None) -> str:
    """A metric in at most seven characters, with about four significant digits."""
    if value is None or not math.isfinite(value):
        return MISSING
    size = abs(value)
    if size == 0:
        return "0"
    if size < 1e-3:
        return f"{value:.1e}"
    if size >= 1e5:
        return count(value)
    for limit, digits in ((1, 4), (10, 3), (100, 2), (1000, 1)):
        if size < limit:
            return f"{value:.{digits}f}"
    return f"{value:.0f}"


def reward(value: float | None) -> str:
    """A reward in at most six characters: three decimals, and fewer where it is large."""
    if value is None or not math.isfinite(value):
        return MISSING
    for limit, digits in ((9.9995, 3), (99.995, 2), (999.95, 1)):
        if abs(value) < limit:
            return f"{value:.{digits}f}"
    return count(value)


def percent(value: float | None) -> str:
    """A percentage in at most five characters: ``31%``, ``3.1%``."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{value:.1f}%" if abs(value) < 9.95 else f"{value:.0f}%"


def seconds(value: float | None) -> str:
    """A short time in at most six characters: ``41 ms``, ``1.4 s``, ``213 s``."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value < 0.0995:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 99.95 else f"{value:.0f} s"


def size(num_bytes: float) -> str:
    """Bytes in at most six characters: ``412 B``, ``9.4 kB``, ``165 MB``."""
    for limit, unit in ((1e3, "B"), (1e6, "kB"), (1e9, "MB")):
        if num_bytes < limit * 0.9995:
            value = num_bytes / limit * 1e3
            return f"{value:.1f} {unit}" if value < 9.95 and unit != "B" else f"{value:.0f} {unit}"
    return f"{num_bytes / 1e9:.1f} GB"


def gib(value: float) -> str:
    """Memory in GiB in at most four characters."""
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"
