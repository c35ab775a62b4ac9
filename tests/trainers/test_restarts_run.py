"""Roles that die or hang in a real run are started again where they can be, and the run goes on as if nothing was."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from trainer_support import ROOT, pid_of

from rltui.onnode import rundir

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_support import Attempt

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

STEPS = 8
WORDS = (f"train.steps={STEPS}", "checkpoint.every=0", "tracking.wandb=disabled")
SHORT = tuple(f"deadlines.{what}_s=15" for what in ("generate", "train", "sync"))

STOP_ONE = """
import os, signal
import {module} as module
method, calls = module.{owner}.{method}, []
def stopping(self, *arguments):
    calls.append(1)
    if len(calls) == 4:
        role = {role}
        os.kill(role.pid, signal.SIGSTOP)
    return method(self, *arguments)
module.{owner}.{method} = stopping
"""
"""Stops a role's process, which then neither answers nor ends, just before it is asked for something."""

TEACHERS = ("roles.teacher.engines=2", "hardware.gpus_per_node=4")
OPD_LAYOUT = ROOT / "layouts" / "local" / "opd-tiny.yaml"


def check_restarted(attempt: Attempt, role: str, pid: int) -> None:
    """The run ended well, and events and log name the process that is gone and the one in its place."""
    assert attempt.wait() == 0, attempt.log()[-3000:]
    assert [line["step"] for line in attempt.metrics()] == list(range(1, STEPS + 1))
    gone, back = attempt.events(rundir.RESTART)
    assert f"{role} (pid {pid} on " in gone
    assert "starting it again (1 of 3 restarts within an hour)" in gone
    assert back.startswith(f"{role} (pid {pid_of(attempt, role)} on ")
    assert f"(pid {pid} on " not in back
    assert pid_of(attempt, role) != pid
    assert gone in attempt.log()
    assert not os.path.exists(f"/proc/{pid}")


def test_a_teacher_that_dies_changes_nothing_but_the_time(launch: Callable[..., Attempt]) -> None:
    words = (*WORDS, *TEACHERS, "roles.rollout.max_concurrency=64")  # asked four times a step, and started again once
    attempt = launch(1, *words, base=OPD_LAYOUT)
    attempt.await_step(2)
    pid = pid_of(attempt, "teacher 1")
    os.kill(pid, 9)
    check_restarted(attempt, "teacher 1", pid)
    shutil.rmtree(attempt.run / rundir.CHECKPOINTS)
    undisturbed = launch(2, *words, base=OPD_LAYOUT)
    assert undisturbed.wait() == 0, undisturbed.log()[-3000:]
    assert undisturbed.rewards(1, STEPS) == attempt.rewards(1, STEPS)
    assert undisturbed.metrics()[-1]["loss"] == pytest.approx(attempt.metrics()[-1]["loss"], abs=1e-6)


def test_a_reference_that_dies_is_started_again(launch: Callable[..., Attempt]) -> None:
    attempt = launch(1, *WORDS, "roles.reference={zero_stage: 0}", "grpo.kl_coefficient=0.1")
    attempt.await_step(2)
    pid = pid_of(attempt, "reference 0")
    os.kill(pid, 9)
    check_restarted(attempt, "reference 0", pid)


def test_a_frozen_role_that_dies_is_named_where_no_restart_is_left(launch: Callable[..., Attempt]) -> None:
    no_restarts = "import trainers.roles.restarts as restarts; restarts.LIMIT = 0"
    attempt = launch(1, *WORDS, "train.steps=5000", *TEACHERS, base=OPD_LAYOUT, preamble=no_restarts)
    attempt.await_step(2)
    pid = pid_of(attempt, "teacher 0")
    os.kill(pid, 9)
    assert attempt.wait(120.0) == 1
    assert f"teacher 0 (pid {pid} on " in attempt.events("error")[-1]


HANGS = {
    "engine, asked for samples": ("trainers.loop", "Loop", "generate", "self.fleet.engines[0]"),
    "engine, sent weights": ("trainers.roles.transfers", "Transfers", "send", "self._engines[0]"),
    "teacher": ("trainers.opd", "Opd", "scored", "self.fleet.of('teacher')[0]"),
}


@pytest.mark.parametrize("place", HANGS)
def test_a_role_that_hangs_is_ended_and_started_again(launch: Callable[..., Attempt], place: str) -> None:
    module, owner, method, role = HANGS[place]
    stop = STOP_ONE.format(module=module, owner=owner, method=method, role=role)
    attempt = launch(1, *WORDS, *SHORT, base=OPD_LAYOUT, preamble=stop)
    attempt.await_step(1)
    name = f"{place.split(',')[0]} 0"
    check_restarted(attempt, name, pid_of(attempt, name))
    assert attempt.events(rundir.RESTART)[0].startswith(f"no answer from {name} (pid ")
    assert "see deadlines in the layout; starting it again" in attempt.events(rundir.RESTART)[0]
