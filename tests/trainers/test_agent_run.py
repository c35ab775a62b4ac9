"""Runs of the real program with agents that ask the policy over HTTP: every game is played to its end, kills or not."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import pytest
from trainer_support import ROOT, Attempt, killed_behind

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

TINY = ROOT / "layouts" / "local" / "grpo-agent-tiny.yaml"
STEPS = 10
SAVED_AT = 5
# a game is a process and two questions over HTTP: as many as the assertions need
WORDS = (
    f"train.steps={STEPS}", f"checkpoint.every={SAVED_AT}", "train.prompts_per_step=12", "tracking.wandb=disabled",
)  # fmt: skip


def column(attempt: Attempt, name: str) -> list[Any]:
    """A metric of each step."""
    return [line[name] for line in attempt.metrics() if "loss" in line]


@pytest.fixture(scope="module")
def attempts(
    ray_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Attempt, Attempt]]:
    """A run that was killed once, and the attempt that went on with it."""
    run = tmp_path_factory.mktemp("killed") / "run-1"
    killed = Attempt(run, 1, WORDS, TINY).start(ray_environment, killed_behind(SAVED_AT))
    resumed = Attempt(run, 2, WORDS, TINY)
    try:
        assert killed.wait() == -9
        assert resumed.start(ray_environment).wait() == 0, resumed.log()[-3000:]
        yield killed, resumed
    finally:
        killed.end()
        resumed.end()


def test_every_game_is_played_to_its_end_and_the_run_goes_on_after_a_kill(attempts: tuple[Attempt, Attempt]) -> None:
    killed, resumed = attempts
    assert resumed.events("checkpoint")[0] == f"resumed from step {SAVED_AT}"
    assert len(column(resumed, "loss")) == STEPS - SAVED_AT
    assert 0.0 < statistics.fmean(column(killed, "reward")[:3]) < 0.45  # two guesses are right by luck in 0.31 of games
    for attempt in attempts:
        assert max(column(attempt, "environment_failures")) == 0.0
        assert all(1.0 < turns < 2.0 for turns in column(attempt, "turns"))
        assert min(column(attempt, "environment_length")) > 1.0
        assert max(column(attempt, "parity_max_abs")) < 1e-4
        assert set(column(attempt, "sequences")) == {1.0}
