"""How often a source is read, and when its data count as stale. Pure functions: this is the whole policy.

Only what can be seen is read often: an open run more than one under the cursor, a terminal that has the focus more
than one in the background, and after ten minutes without a key next to nothing.
"""

from __future__ import annotations

from typing import Literal

from rltui.threads import backed_off_s

Source = Literal["runs", "peek", "run"]
"""``runs``: the list; ``peek``: the run under the cursor; ``run``: the run that is open."""

Freshness = Literal["fresh", "late", "lost"]

Attention = Literal["here", "elsewhere", "gone"]
"""Whether somebody looks: ``elsewhere``: another window has the focus; ``gone``: no key for a long time."""

_LIVE_S: dict[Source, float] = {"runs": 1.0, "peek": 1.0, "run": 0.5}
IDLE_S = 5.0
"""Period while nothing lives: only another rltui can change anything."""

TICK_S = 1.0
"""Period of what depends on the time alone, while an age that is shown changes every second."""

_LEAST_S: dict[Attention, float] = {"here": 0.0, "elsewhere": 5.0, "gone": 60.0}
"""Shortest periods by attention. tmux tells nothing when it is detached, so silence counts too."""

GONE_AFTER_S = 600.0

MAX_FAILURE_S = 30.0
"""Longest period between tries of a source that fails."""

NODES_PER_SECOND = 200.0
"""Samples of so many nodes are read in a second at most: a thousand nodes every five seconds."""

LATE_PERIODS, LOST_PERIODS = 3.0, 10.0


def attention(has_focus: bool, silent_s: float) -> Attention:
    """Whether somebody looks at the cockpit.

    Args:
        has_focus: Whether the terminal says that it has the focus; one that says nothing has it.
        silent_s: Seconds since the last key.
    """
    if silent_s > GONE_AFTER_S:
        return "gone"
    return "here" if has_focus else "elsewhere"


def refresh_interval_s(
    source: Source, live: bool, failures: int = 0, took_s: float = 0.0, attention: Attention = "here", nodes: int = 0
) -> float:
    """Seconds to wait after a read before the next one.

    Args:
        source: What is read.
        live: Whether something of it may still change by itself.
        failures: Reads that failed in a row; each doubles the wait, up to ``MAX_FAILURE_S``.
        took_s: Seconds that the last read took; a slow source is given at least as long a rest.
        attention: Whether somebody looks.
        nodes: Nodes whose samples are read.
    """
    period = max(_LIVE_S[source] if live else IDLE_S, _LEAST_S[attention], nodes / NODES_PER_SECOND)
    if failures > 0:
        period = max(period, backed_off_s(period, failures, MAX_FAILURE_S))
    return max(period, min(took_s, MAX_FAILURE_S))


def freshness(age_s: float, period_s: float) -> Freshness:
    """``late`` from three missed periods on, ``lost`` from ten."""
    if age_s > LOST_PERIODS * period_s:
        return "lost"
    return "late" if age_s > LATE_PERIODS * period_s else "fresh"
