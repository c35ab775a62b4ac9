"""Runs of the real program in environments: they learn from what they are told, and faults cost their own samples."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import statistics
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from learning import LEARNING
from trainer_support import ROOT, Attempt, killed_behind

from waiting import slowness

if TYPE_CHECKING:
    from pathlib import Path

    from trainer_support import Learned

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

TINY = ROOT / "layouts" / "local" / "grpo-tools-tiny.yaml"
STEPS = 60
EVALUATED = ("data.eval=builtin/sort-digits", "data.eval_every=30", "data.eval_prompts=40")
QUIET = "tracking.wandb=disabled"
WORDS = (f"train.steps={STEPS}", "checkpoint.every=10", QUIET, *EVALUATED)


@pytest.fixture(scope="module")
def games(ray_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attempt]:
    attempt = Attempt(tmp_path_factory.mktemp("games") / "run-1", 1, WORDS, TINY).start(ray_environment)
    try:
        assert attempt.wait() == 0, attempt.log()[-3000:]
        yield attempt
    finally:
        attempt.end()


def test_it_learns_to_read_what_the_environment_says(games: Attempt) -> None:
    rewards = games.column("reward")
    assert statistics.fmean(rewards[:3]) < 0.45  # two guesses are right by luck in 0.31 of all games
    assert statistics.fmean(rewards[-10:]) > 0.8
    assert max(games.column("environment_failures")) == 0.0
    assert 1.5 < statistics.fmean(games.column("turns")) < 2.0
    assert max(games.column("parity_max_abs")) < 1e-4


def test_evaluations_are_played_too(games: Attempt) -> None:
    found = {line["step"]: line["eval/reward_mean"] for line in games.metrics() if "eval/reward_mean" in line}
    assert list(found) == [0, 30, STEPS]
    assert found[0] < 0.5 < 0.8 < found[STEPS]
    [*_, last] = sorted((games.run / "evaluations").iterdir())
    said = [json.loads(line)["answer"] for line in last.read_text().splitlines()]
    assert any(re.fullmatch(r"(\d{3})<eos>(\d{3})>(\2)(<eos>)", answer) for answer in said)


def test_a_kill_costs_the_steps_since_the_checkpoint_and_nothing_else(
    games: Attempt, launch: Callable[..., Attempt]
) -> None:
    """The same games, turn by turn: what engines are asked for does not depend on who answered first."""
    killed = launch(1, *WORDS, base=TINY, preamble=killed_behind(10))
    assert killed.wait() == -9
    resumed = launch(2, *WORDS, "train.steps=16", base=TINY)
    assert resumed.wait() == 0, resumed.log()[-3000:]
    assert resumed.events("checkpoint")[0] == "resumed from step 10"
    for name in ("reward", "turns", "response_length", "environment_length"):
        assert resumed.column(name) == games.column(name)[10:16]
    assert resumed.column("loss") == pytest.approx(games.column("loss")[10:16], abs=1e-5)


OWN = """
import os, time
from trainers.environments import Environment, Step

class AtOnce(Environment):
    def reset(self, task):
        self.answer = task.answer
        return task.messages

    def step(self, answer):
        return Step(reward=float(answer == self.answer), done=True)

class Faulty(AtOnce):
    def step(self, answer):
        if answer.startswith("1"):
            raise RuntimeError("no ones")
        if answer.startswith("25"):
            os._exit(3)
        if answer.startswith("52"):
            time.sleep(3600)
        if answer.startswith("2"):
            return Step(reward=float("nan"), done=True)
        return super().step(answer)
"""
SINGLE = ("checkpoint.every=0", QUIET, "data.max_turns=1")


def test_one_turn_that_ends_at_once_is_the_run_with_that_reward(
    learned: Learned, tmp_path: Path, ray_environment: dict[str, str]
) -> None:
    (tmp_path / "own_games.py").write_text(OWN)
    here = {**ray_environment, "PYTHONPATH": f"{ray_environment['PYTHONPATH']}:{tmp_path}"}
    words = (*LEARNING, *SINGLE, "train.steps=4", "data.environment=own_games:AtOnce")
    played = Attempt(tmp_path / "played", 1, words).start(here)
    assert played.wait() == 0, played.log()[-3000:]
    for name in ("reward", "loss", "grad_norm", "entropy", "response_length", "parity_max_abs"):
        assert played.column(name) == learned.attempt.column(name)[:4]
    assert set(played.column("turns")) == {1.0}


def test_faults_cost_their_samples_only_and_the_workers_come_back(
    tmp_path_factory: pytest.TempPathFactory, ray_environment: dict[str, str]
) -> None:
    """Games that raise, end their process, hang or pay nonsense, in a reward worker: the run goes on and learns."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_games.py").write_text(OWN)
    here = {**ray_environment, "PYTHONPATH": f"{ray_environment['PYTHONPATH']}:{folder}"}
    limit_s = math.ceil(slowness())
    words = (*SINGLE, "data.environment=own_games:Faulty", f"deadlines.environment_s={limit_s}", "train.steps=3")
    words += ("lengths.response=4",)
    workers = ("roles.reward={workers: 1}", "hardware.cpus_per_node=4")
    attempt = Attempt(folder / "faulty", 1, (*words, *workers), TINY).start(here)
    assert attempt.wait() == 0, attempt.log()[-3000:]
    failures = attempt.column("environment_failures")
    assert len(failures) == 3
    assert all(0 < count < 256 for count in failures)
    assert attempt.mean_reward(1, 3) > 0.05  # of those that do not begin with 1 or 2
    said = " ".join(attempt.events("environment"))
    assert "RuntimeError: no ones" in said
    assert f"more than {limit_s} s, or ended its process" in said


PPO = ROOT / "layouts" / "local" / "ppo-tiny.yaml"
PLAYED = (
    QUIET,
    "data.environment=builtin/guess-order",
    "data.max_turns=2",
    "lengths.response=12",
    "train.steps=6",
    "train.learning_rate=2.0e-4",
)


NEEDS_VLLM = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
AHEAD = ("ppo.kl=none", "train.async_steps=1", "lengths.pack=64")
VLLM = ("roles.rollout.engine=vllm", "train.steps=3")


@pytest.mark.parametrize(
    ("base", "words", "steps"),
    [
        pytest.param(PPO, AHEAD, 6, id="ppo, ahead"),
        pytest.param(TINY, VLLM, 3, id="vllm", marks=[pytest.mark.vllm, NEEDS_VLLM]),
    ],
)
def test_with_a_critic_ahead_in_packed_rows_and_by_vllm_the_policy_is_the_engines(
    launch: Callable[..., Attempt], base: Path, words: tuple[str, ...], steps: int
) -> None:
    attempt = launch(1, *PLAYED, *words, base=base)
    assert attempt.wait() == 0, attempt.log()[-3000:]
    assert len(attempt.column("reward")) == steps
    assert min(attempt.column("environment_length")) > 2.0
    assert max(attempt.column("environment_failures")) == 0.0
    assert max(line.get("parity_max_abs", 0.0) for line in attempt.metrics()) < 1e-4
    assert all(0 < value < 5 for value in attempt.column("entropy"))
