"""Runs of the real program with agents that ask the policy over HTTP: they learn, and faults cost their own samples."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from trainer_support import ROOT, Attempt

from rltui.onnode import rundir

if TYPE_CHECKING:
    pass

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

TINY = ROOT / "layouts" / "local" / "grpo-agent-tiny.yaml"
STEPS = 60
QUIET = "tracking.wandb=disabled"
WORDS = (f"train.steps={STEPS}", "checkpoint.every=20", QUIET)
KILLED = f"""
import os, signal
from trainers.loop import Loop
generate = Loop.generate
def dying(self, number, *arguments):
    if number > 22 and os.path.exists("../../{rundir.CHECKPOINTS}/step-000020/{rundir.CHECKPOINT_COMPLETE}"):
        os.kill(os.getpid(), signal.SIGKILL)
    return generate(self, number, *arguments)
Loop.generate = dying
"""
"""Kills the trainer soon after its first checkpoint is whole, and before the second is: that waits for the first."""


def column(attempt: Attempt, name: str) -> list[Any]:
    """A metric of each step."""
    return [line[name] for line in attempt.metrics() if "loss" in line]


@pytest.fixture(scope="module")
def learned(
    ray_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Attempt, Attempt]]:
    """A run that was killed once, and the attempt that went on with it."""
    run = tmp_path_factory.mktemp("learned") / "run-1"
    killed = Attempt(run, 1, WORDS, TINY).start(ray_environment, KILLED)
    resumed = Attempt(run, 2, WORDS, TINY)
    try:
        assert killed.wait() == -9
        assert resumed.start(ray_environment).wait() == 0, resumed.log()[-3000:]
        yield killed, resumed
    finally:
        killed.end()
        resumed.end()


def test_it_learns_from_what_the_agent_tells_it_and_goes_on_after_a_kill(learned: tuple[Attempt, Attempt]) -> None:
    killed, resumed = learned
    assert resumed.events("checkpoint")[0] == "resumed from step 20"
    begun, ended = column(killed, "reward"), column(resumed, "reward")
    assert statistics.fmean(begun[:3]) < 0.45  # two guesses are right by luck in 0.31 of all games
    assert statistics.fmean(ended[-10:]) > 0.8
    for attempt in learned:
        assert max(column(attempt, "environment_failures")) == 0.0
        assert max(column(attempt, "parity_max_abs")) < 1e-4
        assert set(column(attempt, "sequences")) == {1.0}
