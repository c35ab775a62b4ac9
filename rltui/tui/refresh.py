"""How often a source is read, and when its data count as stale. Pure functions."""

from __future__ import annotations

from typing import Literal

Source = Literal["runs", "peek", "run"]
"""``runs``: the list; ``peek``: the run under the cursor; ``run``: the run that is open."""

Freshness = Literal["fresh", "late", "lost"]

_LIVE_S: dict[Source, float] = {"runs": 1.0, "peek": 1.0, "run": 0.5}
IDLE_S = 5.0
"""Period while nothing lives: only another rltui can change anything."""

MAX_FAILURE_S = 30.0
"""Longest period between tries of a source that fails."""

LATE_PERIODS, LOST_PERIODS = 3.0, 10.0


def refresh_interval_s(source: Source, live: bool, failures: int = 0, took_s: float = 0.0) -> float:
    """Seconds to wait after a read before the next one.

    Args:
        source: What is read.
        live: Whether something of it may still change by itself.
        failures: Reads that failed in a row; each doubles the wait, up to ``MAX_FAILURE_S``.
        took_s: Seconds that the last read took; a slow source is given at least as long a rest.
    """
    period = _LIVE_S[source] if live else IDLE_S
    if failures > 0:
        period = max(period, min(MAX_FAILURE_S, period * 2.0 ** min(failures, 10)))
    return max(period, min(took_s, MAX_FAILURE_S))


def freshness(age_s: float, period_s: float) -> Freshness:
    """``late`` from three missed periods on, ``lost`` from ten."""
    if age_s > LOST_PERIODS * period_s:
        return "lost"
    return "late" if age_s > LATE_PERIODS * period_s else "fresh"
