"""Whether a link of a chain of jobs has anything left to do.

The links of a chain are submitted together, each to start after the one before has ended, however that was. So each
looks back first: where the run is done or was cancelled it ends at once, and so it does after a failure in the first
minutes, which would only repeat itself until the whole chain is burnt.
"""

import os
from typing import Any, Dict, List, NamedTuple, Optional

from rltui.onnode import hands_off, rundir, script_resume
from rltui.onnode.allocation import NOT_THE_RUNS

TOO_SOON_S = 120.0
"""An attempt that fails sooner than this fails for a reason that is still there."""

STOP = "stop"
"""A file of this name in the run directory stops every later link; made by hand where rltui is not at hand."""


class EndedAttempt(NamedTuple):
    """How an earlier attempt ended."""

    number: str
    outcome: str
    at: float
    lasted_s: float


class Verdict(NamedTuple):
    """Why this link has nothing to do: one of ``rundir.OUTCOMES``, a sentence, and how far the run had come."""

    outcome: str
    reason: str
    step: Optional[int] = None
    steps: Optional[int] = None


def verdict(attempt: str) -> Optional[Verdict]:
    """Look back from the attempt in ``attempt``; None where it is no later link of a chain, or has work to do."""
    attempt = os.path.abspath(attempt)
    job = rundir.read_json(os.path.join(attempt, rundir.JOB)) or {}
    if not job.get("after_job"):
        return None
    run = rundir.run_of(attempt)
    if os.path.exists(os.path.join(run, STOP)):
        return Verdict("cancelled", "a file named %s in the run directory stops the chain" % STOP)
    if hands_off.queues_ahead(attempt) and not hands_off.is_on(attempt):
        stopped = hands_off.told_of(attempt).get("stopped")
        return Verdict("cancelled", "the run goes on by itself no more: %s" % stopped)
    found = judge(past(run, os.path.basename(attempt)))
    if found is None:
        return None
    stage = _farthest(run)
    return found._replace(step=stage.get("step"), steps=stage.get("steps"))


def goes_on(attempt: str) -> bool:
    """Whether the attempt has work to do; the end of one that has none is written.

    A later link of another system's script goes on from what was saved since the link was submitted.
    """
    idle = verdict(attempt)
    if idle is not None:
        rundir.write_stage(attempt, "ended", idle.reason, step=idle.step, steps=idle.steps)
        rundir.write_end(attempt, idle.outcome, 0, idle.reason)
        return False
    job = rundir.read_json(os.path.join(attempt, rundir.JOB)) or {}
    told = rundir.read_json(os.path.join(attempt, rundir.SCRIPT_RUN))
    if told and job.get("after_job"):
        rundir.write_json(os.path.join(attempt, rundir.SCRIPT_RUN), script_resume.here(told))
    return True


def _farthest(run: str) -> Dict[str, Any]:
    """The stage of the attempt that came farthest."""
    folder = os.path.join(run, rundir.ATTEMPTS)
    stages = [rundir.read_json(os.path.join(folder, name, rundir.STAGE)) or {} for name in sorted(os.listdir(folder))]
    return max(stages, key=lambda stage: _number(stage.get("step")))


def judge(ended: List[EndedAttempt]) -> Optional[Verdict]:
    """What the attempts that have ended, in any order, mean for the next link."""
    for one in ended:
        if one.outcome == "finished":
            return Verdict("finished", "all steps were done in attempt %s" % one.number)
    if not ended:
        return None
    last = max(ended, key=lambda one: one.at)
    if last.outcome == "cancelled":
        return Verdict("cancelled", "the run was cancelled in attempt %s" % last.number)
    if last.outcome in ("failed", "lost") and last.lasted_s < TOO_SOON_S:
        words = "attempt %s failed within %.0f s, and so would this one: the chain stops" % (last.number, TOO_SOON_S)
        return Verdict("failed", words)
    return None


def past(run: str, mine: str) -> List[EndedAttempt]:
    """The attempts of the run directory ``run`` that have ended, but for the one called ``mine``.

    What Slurm ended by its own doing (a preemption, a lost node) was neither cancelled by anybody nor the run's fault.
    """
    folder = os.path.join(run, rundir.ATTEMPTS)
    found = []
    for name in sorted(os.listdir(folder)):
        end = rundir.read_json(os.path.join(folder, name, rundir.END)) if name.isdigit() and name != mine else None
        if end is not None and end.get("slurm") not in NOT_THE_RUNS:
            at = _number(end.get("at"))
            found.append(EndedAttempt(name, str(end.get("outcome")), at, at - _began(os.path.join(folder, name), at)))
    return found


def _began(attempt: str, otherwise: float) -> float:
    stage: Dict[str, Any] = rundir.read_json(os.path.join(attempt, rundir.STAGE)) or {}
    history = stage.get("history") or [{}]
    return _number(history[0].get("at")) or otherwise


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
