"""Hands-off mode on the node: whether it is on for a run, and who decides when an attempt has ended.

Nothing stays on a login node. What watches is the attempt's own process, and what decides is a short program that it
starts as its last deed, in the allocation or beside the run (``rltui/service/hands_off.py``).
"""

import contextlib
import os
import subprocess
import sys
from typing import Any, Dict, Optional, Sequence

from rltui.onnode import rundir
from rltui.onnode.tell_once import tell_of

DECISION_S = 100.0
"""How long deciding and submitting may hold an allocation that has nothing else to do."""

STATE = ".hands-off"
"""Folder of the run root where the journal of these decisions is: a node may have no home."""

_NOT_FOR_A_NEW_JOB = ("SLURM_", "SBATCH_", "SALLOC_", "SRUN_")


def is_on(attempt: str) -> bool:
    """Whether the run of the attempt in ``attempt`` is to go on by itself."""
    return bool(told_of(attempt).get("on"))


def queues_ahead(attempt: str) -> bool:
    """Whether its next job is to be queued while one trains, as long as it goes on by itself."""
    return bool((told_of(attempt).get("policy") or {}).get("queue_ahead"))


def told_of(attempt: str) -> Dict[str, Any]:
    """What ``hands-off.json`` of the run says; empty where the mode was never on."""
    return rundir.read_json(os.path.join(rundir.run_of(attempt), rundir.HANDS_OFF)) or {}


def await_decision(attempt: str, child: "subprocess.Popen[bytes]", wait_s: Optional[float]) -> None:
    """Wait for the decision how the run goes on after the end of its attempt.

    Args:
        attempt: The attempt's directory, with its end in it.
        child: What decides, as of ``start``.
        wait_s: How long to wait for that; None: not at all, as what decides may outlive this process.
    """
    if wait_s is None:
        return
    try:
        child.wait(wait_s)
    except subprocess.TimeoutExpired:
        child.kill()
        _say_undecided(attempt, "no decision within %.0f s" % wait_s)
    else:
        if child.returncode < 0:
            _say_undecided(attempt, "what decides was ended by signal %d" % -child.returncode)


def start(attempt: str, options: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
    """Start what decides how the run goes on, with further options for it; ``await_decision`` waits for it."""
    attempt = os.path.abspath(attempt)
    with open(os.path.join(attempt, "hands-off.log"), "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "rltui.service.hands_off", attempt, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=attempt,
            env=_environment(attempt),
            start_new_session=True,
        )


def decide(attempt: str) -> "Optional[subprocess.Popen[bytes]]":
    """Start what decides how a run goes on whose attempt has ended, where the mode is on; None: it was not started."""
    if not is_on(attempt):
        return None
    try:
        return start(attempt)
    except OSError as error:  # a full disk, no room for a process
        _say_undecided(attempt, "what decides cannot be started: %s" % error)
        return None


def _say_undecided(attempt: str, why: str) -> None:
    with contextlib.suppress(OSError):
        rundir.log_event(attempt, "warning", "hands-off: " + why)
    tell_of(attempt, "needs you", words="hands-off mode: " + why)


def _environment(attempt: str) -> Dict[str, str]:
    """What this process has, but for the attempt's mark and for what Slurm would read as options of the new job."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_FOR_A_NEW_JOB)}
    kept.pop(rundir.ATTEMPT_VARIABLE, None)
    root = os.path.dirname(rundir.run_of(attempt))
    kept.update({"RLTUI_RUN_ROOT": root, rundir.DECIDER_VARIABLE: os.path.join(root, STATE)})
    return kept
