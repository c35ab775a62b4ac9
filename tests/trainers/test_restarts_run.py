"""Roles that hang in a real run are ended and started again, until no restart is left."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest
from trainer_support import ROOT, pid_of

from rltui.onnode import rundir
from waiting import eventually, slowness

if TYPE_CHECKING:
    from trainer_support import Attempt

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

WORDS = ("train.steps=5000", "checkpoint.every=0", "tracking.wandb=disabled")
SHORT_S = 15.0
"""A deadline that a step of a second keeps, longer on a machine that is slow now."""

STOPS = """
import os, signal
from importlib import import_module
def stop(module, owner, name, at, role):
    owner = getattr(import_module(module), owner)
    method, calls = getattr(owner, name), []
    def stopping(self, *arguments):
        calls.append(1)
        if len(calls) == at:
            os.kill(role(self).pid, signal.SIGSTOP)
        return method(self, *arguments)
    setattr(owner, name, stopping)
stop("trainers.loop", "Loop", "generate", 3, lambda loop: loop.fleet.engines[0])
stop("trainers.weight_sync", "Transfers", "send", 6, lambda transfers: transfers._engines[0])
stop("trainers.opd", "Opd", "with_teacher_scores", 9, lambda loop: loop.fleet.of("teacher")[0])
"""
"""Stops roles' processes, which then neither answer nor end, just before they are asked for something."""
STOPPED = ("engine 0", "engine 0", "teacher 0")

OPD_LAYOUT = ROOT / "layouts" / "local" / "opd-tiny.yaml"


def test_roles_that_hang_are_ended_and_started_again_until_no_restart_is_left(launch: Callable[..., Attempt]) -> None:
    short = [f"deadlines.{what}_s={SHORT_S * slowness():.0f}" for what in ("generate", "train", "sync")]
    attempt = launch(1, *WORDS, *short, base=OPD_LAYOUT, preamble=STOPS)
    for number, role in enumerate(STOPPED):
        told = partial(attempt.events, rundir.RESTART)
        gone, back = eventually(lambda told=told, at=2 * number: told()[at : at + 2][1:] and told()[at : at + 2], role)
        assert gone.startswith(f"no answer from {role} (pid ")
        assert f"see deadlines in the layout; starting it again ({number + 1} of 3 restarts within an hour)" in gone
        assert back.startswith(f"{role} (pid ")
        dead, alive = (re.search(r"\(pid (\d+) on ", one) for one in (gone, back))
        assert dead is not None is not alive
        assert dead[1] != alive[1]
        assert not os.path.exists(f"/proc/{dead[1]}")
    attempt.await_step(attempt.metrics()[-1]["step"] + 2)
    pid = pid_of(attempt, "teacher 0")
    os.kill(pid, 9)
    assert attempt.wait() == 1
    assert f"teacher 0 (pid {pid} on " in attempt.events("error")[-1]
    steps = [line["step"] for line in attempt.metrics()]
    assert steps == list(range(1, len(steps) + 1))
