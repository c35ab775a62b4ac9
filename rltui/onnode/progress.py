"""Whether an attempt stands still: each stage has its own deadline, and steps are held against the run's own history.

Steps of RL take seconds or half an hour, so a stall is relative; until there are three steps there is nothing to
compare with, and the first ones may compile.
"""

import json
import os
import statistics
import time
from typing import Dict, Iterable, List, Optional, Sequence, Tuple, TypeVar

from rltui.onnode import rundir, work_signs

STAGE_S: Dict[str, float] = {
    "preflight": 300.0,
    "ray-up": 600.0,
    "placing": 900.0,
    "loading": 3600.0,
    "saving": 3600.0,
}
"""Longest that each stage takes where nothing is wrong; queueing and training have no such bound."""

LEAST_STEPS = 3
FIRST_STEPS_S = 3600.0
FIRST_STEPS_MOST_S = 6 * 3600.0
"""As long as a first step may take that shows signs of work (``work_signs.py``)."""
STALL_S, STALL_MEDIANS, STALL_LONGEST = 600.0, 4.0, 2.0
"""No new step for longer than these seconds, medians of a step, and longest steps is a stall."""

WATCH_S = 5.0
"""How often an attempt is looked at."""

TAIL_BYTES = 1 << 18
Point = TypeVar("Point")

SCALE = "RLTUI_DEADLINE_SCALE"
"""Environment variable that shortens all these seconds, for tests: 0.01 makes ten minutes six seconds."""


def standstill(attempt: str, now: Optional[float] = None, from_s: float = 0.0) -> str:
    """Say in a sentence what takes too long in the attempt; empty where it gets on.

    Args:
        attempt: The attempt's directory.
        now: Epoch seconds; None: this moment.
        from_s: Nothing is waited for since longer than this, epoch seconds.
    """
    now = time.time() if now is None else now
    by = scale()
    stage = rundir.read_json(os.path.join(attempt, rundir.STAGE)) or {}
    name, since = str(stage.get("stage")), max(from_s, float(stage.get("since") or now))
    if name in STAGE_S and now - since > STAGE_S[name] * by:
        return _outlasted(attempt, name, since, now, by)
    if name != "training" or str(stage.get("detail") or "").startswith(rundir.EVALUATING):
        return ""
    times = step_times(attempt)
    if len(times) < LEAST_STEPS:
        return _slow_to_begin(attempt, now - max([since, *times]), now, by)
    return _stalled(times, since, now, by)


def _outlasted(attempt: str, name: str, since: float, now: float, by: float) -> str:
    """That a stage is past its deadline; a script's loading ends with its first step, of which it may never tell."""
    script = rundir.read_json(os.path.join(attempt, rundir.SCRIPT_RUN)) if name == "loading" else None
    if script is not None:
        if script.get("dialect", {}).get("name") == rundir.GENERIC:
            return ""  # a program of nobody's known words may train and say nothing that is understood
        since = max(since, rundir.written_at(os.path.join(attempt, rundir.OUT_LOG)))
    usual_s = STAGE_S[name] * by
    # a script that works may train already
    if now - since <= usual_s or (script is not None and work_signs.seen(attempt, now, STALL_S * by)):
        return ""
    return "stage %s lasts %.0f s, %.0f are usual" % (name, now - since, usual_s)


def step_times(attempt: str) -> List[float]:
    """When the newest steps were done, epoch seconds, oldest first."""
    text = rundir.read_tail(os.path.join(attempt, rundir.METRICS), limit=TAIL_BYTES)
    return [time for _, time in in_order(filter(None, map(_step_of, text.splitlines())))]


def in_order(points: Iterable[Tuple[int, Point]]) -> List[Tuple[int, Point]]:
    """Lines of metrics as a curve: a step that comes again, done or told once more, replaces those from it on."""
    found: List[Tuple[int, Point]] = []
    for point in points:
        while found and found[-1][0] >= point[0]:
            found.pop()
        found.append(point)
    return found


def _step_of(line: str) -> Optional[Tuple[int, float]]:
    """A step and when it was done; None where the line is cut at its beginning, or torn."""
    try:
        told = json.loads(line)
        return int(told["step"]), float(told["time"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _slow_to_begin(attempt: str, waited: float, now: float, by: float) -> str:
    """That one of the first steps takes too long, which have nothing to be held against but signs of work."""
    if waited <= FIRST_STEPS_S * by:
        return ""
    said = "no new step for %.0f s, and fewer than %d so far" % (waited, LEAST_STEPS)
    if waited > FIRST_STEPS_MOST_S * by:
        return said
    is_at_work = work_signs.seen(attempt, now, STALL_S * by)
    return "" if is_at_work else "%s; no GPU, engine or process works, and no log grows" % said


def _stalled(times: List[float], since: float, now: float, by: float) -> str:
    took_s = [times[i + 1] - times[i] for i in range(len(times) - 1)]
    waited = now - max(times[-1], since)
    if waited > patience_s(took_s, by):
        return "no new step for %.0f s, a step takes %.1f s" % (waited, statistics.median(took_s))
    return ""


def patience_s(took_s: Sequence[float], by: float = 1.0) -> float:
    """How long a run that took so long for each of its steps may be without a new one before that is a stall."""
    return max(STALL_S * by, STALL_MEDIANS * statistics.median(took_s), STALL_LONGEST * max(took_s))


def scale() -> float:
    """By how much all deadlines are shortened."""
    try:
        return float(os.environ.get(SCALE) or 1.0)
    except ValueError:
        return 1.0
