"""How often Slurm is asked: pure functions. Sites ask for one squeue in half a minute at most; many block more."""

from __future__ import annotations

import math

from msgspec import Struct

ACTIVE_S = 30.0
"""Between two looks while somebody is watching and a job is alive: 4 RPCs a minute."""
UNWATCHED_S = 60.0
IDLE_S = 120.0
AFTER_CHANGE_S = 10.0
CHANGE_WINDOW_S = 120.0
"""How long after a submission or cancellation its effect is looked for more often."""
LONGEST_S = 300.0

PLACES_S = 180.0
"""Between two looks at everybody's pending jobs; the look after one comes half as late again, for 6 RPCs a minute."""

ACCOUNTING_FIRST_S = 40.0
ACCOUNTING_STEP_S = 10.0
ACCOUNTING_LONGEST_S = 180.0
ACCOUNTING_TRIES = 12
"""After as many, half an hour, a job that nobody knows is given up: its end marker is the only word left."""


class Needs(Struct, frozen=True, kw_only=True):
    """What decides when the next look is due."""

    is_watched: bool = True
    """Whether a screen shows jobs."""
    is_active: bool = True
    """Whether a job that somebody asked for is alive or its fate unknown."""
    changed_ago_s: float | None = None
    """Seconds since the last submission, cancellation or other change; None: there was none."""
    failures: int = 0
    """Looks in a row that failed."""
    asked_for_places: bool = False
    """Whether the last look also asked for everybody's pending jobs."""


def next_look_s(needs: Needs, chance: float) -> float:
    """Seconds until Slurm is asked again.

    Args:
        needs: What is the case.
        chance: A random number in [0, 1): many users' rltui must not ask in step. It only ever adds, up to a fifth.
    """
    if not needs.is_active:
        delay = IDLE_S
    elif needs.is_watched:
        delay = ACTIVE_S * (1.5 if needs.asked_for_places else 1.0)
    else:
        delay = UNWATCHED_S
    if needs.failures:
        delay = min(LONGEST_S, delay * 2.0 ** min(needs.failures, 10))
    elif needs.changed_ago_s is not None and 0 <= needs.changed_ago_s <= CHANGE_WINDOW_S:
        delay = AFTER_CHANGE_S
    return delay * (1 + 0.2 * chance)


def accounting_delay_s(tries: int) -> float:
    """Seconds until the accounting is asked again for a vanished job, after ``tries``: 40, 50, 60 … 180; then never."""
    if tries >= ACCOUNTING_TRIES:
        return math.inf
    return min(ACCOUNTING_LONGEST_S, ACCOUNTING_FIRST_S + ACCOUNTING_STEP_S * max(0, tries - 1))
