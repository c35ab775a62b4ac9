"""What curves of several runs are laid over: the step, seconds of training, or the GPU-hours that these took."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rltui.errors import UsageError
from rltui.watch.history import HOUR_S, StepTime

if TYPE_CHECKING:
    from rltui.service.compare import Side
    from rltui.watch.snapshots import RunHistory

AXES = ("step", "time", "gpu_hours")
COLUMNS = {"time": "time_s", "gpu_hours": "gpu_hours"}
"""The column of an axis other than the step, with its unit."""


def spent(
    steps: Sequence[int], history: RunHistory, times: Mapping[int, Mapping[int, StepTime]]
) -> dict[str, tuple[float, ...]]:
    """What each of ``steps`` came after, by axis; NaN where nothing tells.

    Time begins with the first training step and runs while an attempt has its machines: saving, steps that were done
    again and the start-up of a later attempt are in it, since they cost GPUs; the wait between two attempts is not.

    Args:
        steps: Steps that count.
        history: The attempts by their starts, with the GPUs of each.
        times: When steps ended, by attempt and step.
    """
    found: dict[int, tuple[float, float]] = {}
    spent_s = spent_h = 0.0
    for attempt in history.attempts:
        steps_of = times.get(attempt.number, {})
        ends = [(one.at, step) for step, one in steps_of.items() if one.at is not None]
        start = attempt.started_at if found else None
        if start is None and ends:
            first_at, first = min(ends)
            start = first_at - (steps_of[first].took_s or 0.0)
        if start is None:
            continue
        gpus = attempt.slots or math.nan
        for at, step in ends:
            done_s = max(0.0, at - start)
            found[step] = (spent_s + done_s, spent_h + done_s * gpus / HOUR_S)
        last = max((at for at, _ in ends), default=start)
        held_s = max(0.0, (attempt.ended_at or last) - start)
        spent_s, spent_h = spent_s + held_s, spent_h + held_s * gpus / HOUR_S
    pairs = [found.get(step, (math.nan, math.nan)) for step in steps]
    return {"time": tuple(pair[0] for pair in pairs), "gpu_hours": tuple(pair[1] for pair in pairs)}


def positions(side: Side, axis: str) -> Sequence[float]:
    """Where each point of a run stands on ``axis``."""
    return side.metrics.steps if axis == "step" else side.spent[axis]


def require_axis(sides: Sequence[Side], axis: str) -> None:
    """See that runs can stand on one axis.

    Raises:
        UsageError: The points of one have no place on it, or its hours are of something else.
    """
    for side in sides:
        if side.metrics.steps and not any(map(math.isfinite, positions(side, axis))):
            raise UsageError(f"{side.run_id} does not say when its steps ended.", "--axis step compares by steps.")
    if axis == "gpu_hours" and len({side.history.unit for side in sides}) > 1:
        raise UsageError("One run has GPUs and another CPU slots: their hours differ.", "--axis time compares them.")


def place_words(axis: str, at: float, unit: str) -> str:
    """A place on an axis in words, such as ``1.5 GPU-hours``."""
    if axis == "step":
        return f"step {at:.0f}"
    return f"{at / HOUR_S:.3g} hours of training" if axis == "time" else f"{at:.3g} {unit}-hours"
