"""Slurm's notation of time limits."""

from __future__ import annotations

import math
import re

_TIME = re.compile(
    r"(?:(?P<days>\d{1,9})-)?(?P<first>\d{1,9})(?::(?P<second>\d{1,2}))?(?::(?P<third>\d{1,2}))?", re.ASCII
)


def time_limit_s(text: str) -> float | None:
    """Seconds of a Slurm time limit; infinite for 0, which asks for none; None where it is not one."""
    seconds = duration_s(text)
    return math.inf if seconds == 0 else seconds


def duration_s(text: str) -> int | None:
    """Seconds of a time as Slurm writes it; None where it is not one.

    Slurm reads one number as minutes, two as MM:SS, three as HH:MM:SS, and after ``D-`` as HH, HH:MM or HH:MM:SS.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    days, first, second, third = match.group("days", "first", "second", "third")
    numbers = [int(part) for part in (first, second, third) if part is not None]
    if days is not None:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return int(days) * 86400 + hours * 3600 + minutes * 60 + seconds
    if len(numbers) == 1:
        return numbers[0] * 60
    padded = [0, *numbers] if len(numbers) == 2 else numbers
    return padded[0] * 3600 + padded[1] * 60 + padded[2]
