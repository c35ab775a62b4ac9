"""The phases of a training step among a run's metrics, and what runs beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

PREFIX = "time/"
TOTAL = "time/total"
FIRST = ("time/generate", "time/train", "time/weight_sync", "time/saving")
"""Phases that come first; others follow by name."""

BESIDE = frozenset(
    {"time/engine_idle", "time/learner_idle", "time/update_actor", "time/update_critic", "time/update_overlap"}
)
"""Times that run beside the phases, or inside of one: stacked on them a step would look longer than it is."""

REST = "other"
"""What a step takes beyond its phases."""

REST_FROM = 0.02
"""Share of a step from which on there is a rest."""


def phase_names(series: Iterable[str]) -> list[str]:
    """Metrics that are phases of a step, in their order; times beside or inside of these are none."""
    known = set(series)
    others = sorted(n for n in known if n.startswith(PREFIX) and n not in (*FIRST, *BESIDE, TOTAL))
    return [*(name for name in FIRST if name in known), *others]


def stacked(seconds: Mapping[str, float]) -> dict[str, float]:
    """The phases of a step that took any time, in their order, and the rest; all of them add up to the step."""
    found = {name: seconds[name] for name in phase_names(seconds) if 0 < seconds[name] < math.inf}
    total = seconds.get(TOTAL, 0.0)
    rest = total - sum(found.values())
    return found | {REST: rest} if found and rest > REST_FROM * total else found
