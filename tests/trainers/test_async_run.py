"""Rollouts that run ahead of the learner on a real Ray, through the death of an engine."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from learning import STEPS, check_learned
from trainer_support import ask_status, pid_of, trains_beside

from rltui.onnode import rundir
from waiting import eventually

if TYPE_CHECKING:
    from trainer_support import Attempt

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

AHEAD = (
    "train.async_steps=2", f"train.steps={STEPS}", "train.learning_rate=5.0e-4", "roles.learner.gpus=[1]",
    "roles.rollout.engines=2", "roles.rollout.max_concurrency=64", "checkpoint.every=0", "tracking.wandb=disabled",
)  # fmt: skip
PARITY_BOUND = 1e-4
INFLIGHT_STEPS = 30
"""Steps after which runs whose calls are small, and so take long, have risen by .4."""
PRETENDING = """
import os
from trainers.weight_sync import Transfers
send = Transfers.send
def pretend(self, version):
    if self._is_open or not os.path.exists("pretends"):
        return send(self, version)
    self.versions.update({engine.name: version for engine in self._engines})
    return self._open()
Transfers.send = pretend
"""
"""Once the file is there, an engine that comes back is said to have the weights that nobody sent it."""


def test_it_learns_two_steps_behind_without_the_engine_that_was_killed_but_not_with_its_first_weights(
    launch: Callable[..., Attempt],
) -> None:
    """An engine is killed twice; the second time it acknowledges the version of the moment, but nobody has sent it.

    The comparison with the learners tells, and ends the run.
    """
    attempt = launch(1, *AHEAD, "train.steps=5000", preamble=PRETENDING)
    attempt.await_step(15)
    killed = pid_of(attempt, "engine 1")
    os.kill(killed, 9)
    eventually(lambda: len(attempt.events(rundir.RESTART)) >= 2, "the engine's return")
    status = ask_status(attempt)[1]
    attempt.await_step(STEPS)
    returned = pid_of(attempt, "engine 1")
    (attempt.path / "pretends").touch()
    os.kill(returned, 9)
    assert attempt.wait() == 1

    died, back, died_again = attempt.events(rundir.RESTART)[:3]
    assert died.startswith(f"engine 1 (pid {killed} on ")
    assert died_again.startswith(f"engine 1 (pid {returned} on ")
    assert returned != killed
    apart = re.search(r"runs weight version (\d+) and goes on; (\S+) apart from the learners", back)
    assert apart is not None
    assert int(apart[1]) >= 15
    assert float(apart[2]) < PARITY_BOUND
    error = attempt.events("error")[-1]
    assert re.match(r"engine 1 \(pid \d+ on .*\), started again, and the learners disagree by ", error)
    assert "the engine does not run the learner's weights" in error

    metrics = attempt.metrics()[:STEPS]
    assert [line["step"] for line in metrics] == list(range(1, STEPS + 1))
    check_learned("grpo", metrics)
    assert all(line["staleness_max"] <= min(line["step"] - 1, 2) for line in metrics)
    assert max(line["staleness_max"] for line in metrics) == 2.0
    assert all(line["staleness_mean"] <= line["staleness_max"] for line in metrics)
    fresh = [line["parity_max_abs"] for line in metrics if "parity_max_abs" in line]
    assert 0 < max(fresh) < PARITY_BOUND  # of step 1 at least; older samples are another policy's
    assert max(line["mismatch_kl"] for line in metrics) > 1e-4  # which shows here
    for line in metrics:
        assert 0 <= line["time/learner_idle"] < line["time/total"]
        assert 0 <= line["time/engine_idle"] <= line["time/total"] * 1.01

    assert set(status["staleness_histogram"]) <= {"0", "1", "2"}
    assert sum(status["staleness_histogram"].values()) == 256
    assert status["staleness_max"] <= 2
    assert status["queues"]["Prompt Queue"]["maxsize"] == 3 * 32
    assert set(status["weight_versions"]) == {"engine 0", "engine 1"}
    assert status["concurrency_per_engine"] == 64
    assert status["time/engine_idle"] >= 0


def test_it_learns_with_weights_that_come_in_the_midst_of_samples_and_judges_while_the_learners_train(
    launch: Callable[..., Attempt],
) -> None:
    # small calls keep the engine at work, so that weights meet it there
    words = ["train.inflight_updates=true", f"train.steps={INFLIGHT_STEPS}", "roles.rollout.max_concurrency=16"]
    beside = trains_beside("trainers.rewards.exact:Exact", "score", steps=INFLIGHT_STEPS)
    attempt = launch(1, *AHEAD, *words, "roles.rollout.engines=1", preamble=beside)
    assert attempt.wait() == 0, attempt.log()[-3000:]
    metrics = attempt.metrics()
    assert attempt.mean_reward(INFLIGHT_STEPS - 9, INFLIGHT_STEPS) > attempt.mean_reward(1, 5) + 0.3
    assert {line["staleness_max"] for line in metrics} <= {0.0, 1.0, 2.0}
    assert max(line["mixed_versions_fraction"] for line in metrics) > 0


@pytest.mark.vllm
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
def test_it_learns_with_weights_that_come_in_the_midst_of_vllm_samples(launch: Callable[..., Attempt]) -> None:
    # fewer at once than a call asks for: weights meet samples that have begun, and some that have not
    words = [*AHEAD, "train.inflight_updates=true", f"train.steps={INFLIGHT_STEPS}", "roles.rollout.engine=vllm"]
    attempt = launch(1, *words, "roles.rollout.engines=1", "roles.rollout.max_concurrency=16")
    assert attempt.wait() == 0, attempt.log()[-3000:]
    metrics = attempt.metrics()
    assert attempt.mean_reward(INFLIGHT_STEPS - 9, INFLIGHT_STEPS) > attempt.mean_reward(1, 5) + 0.3
    assert {line["staleness_max"] for line in metrics} <= {0.0, 1.0, 2.0}
    assert max(line["mixed_versions_fraction"] for line in metrics) > 0
    told = [line for line in metrics if "kv_cache_usage" in line]  # a step that was ready may end before a call does
    assert all(0 < line["kv_cache_usage"] <= 1 and 0 < line["engine_running"] <= 16 for line in told)
    assert max(line["engine_waiting"] for line in told) > 0  # the spare samples
    fresh = [line["parity_max_abs"] for line in metrics if "parity_max_abs" in line]
    assert 0 < max(fresh) < PARITY_BOUND
