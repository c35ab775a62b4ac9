"""PPO as a program: it learns, its two models are trained at the same time where they can be, and it resumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from learning import STEPS, check_learned
from trainer_support import ROOT

if TYPE_CHECKING:
    from trainer_support import Attempt

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

LAYOUT = ROOT / "layouts" / "local" / "ppo-tiny.yaml"
SUMS = ROOT / "tests/fixtures/data/sums.jsonl"
WORDS = (f"train.steps={STEPS}", "checkpoint.every=20", "tracking.wandb=disabled")
STANDARD = ("pools={all: {gpus: [1]}}", "roles.learner.pool=all", "roles.rollout.pool=all", "roles.critic.pool=all")


def test_it_learns_and_split_updates_overlap(launch: Callable[..., Attempt]) -> None:
    attempt = launch(1, *WORDS, base=LAYOUT)
    assert attempt.wait() == 0, attempt.log()[-3000:]
    lines = attempt.metrics()
    check_learned("ppo", lines)
    assert max(line["parity_max_abs"] for line in lines) < 1e-4
    assert sum(line["time/update_overlap"] > 0 for line in lines) > 0.9 * len(lines)
    assert {"timing_s/gen", "timing_s/update_actor", "timing_s/update_critic"} <= set(lines[-1])


def test_standard_placement_with_a_reference_takes_turns_warms_its_critic_up_and_resumes(
    launch: Callable[..., Attempt],
) -> None:
    """All roles on the same slots, two training sets, a KL penalty, a kill, and the curve of a run that was let be."""
    words = [*STANDARD, *WORDS, "train.steps=30", "roles.reference={precision: fp32}", "train.optimizer_steps=2"]
    words += ["ppo.kl=reward", "ppo.kl_coefficient=0.01", "ppo.kl_target=0.05", "checkpoint.every=10"]
    words += ["ppo.entropy_coefficient=0.001", "ppo.critic_warmup_steps=6"]
    words += [f"data.mixture=[{{name: sums, train: {SUMS}, weight: 0.5}}]"]
    whole = launch(1, *words, base=LAYOUT)
    assert whole.wait() == 0, whole.log()[-3000:]
    lines = whole.metrics()
    assert all(line["time/update_overlap"] == 0 for line in lines)
    assert lines[0]["kl"] == pytest.approx(0.0, abs=1e-4)
    assert lines[-1]["kl"] > 0.0
    assert [line["weight_version"] for line in lines] == [*[0] * 6, *range(1, 25)]  # the policy stands still meanwhile
    assert [line["grad_norm"] > 0 for line in lines] == [False] * 6 + [True] * 24
    assert all(line["critic_grad_norm"] > 0 for line in lines)
    checkpoint = whole.run / "checkpoints" / "step-000020"
    (whole.run / "checkpoints" / "step-000030" / "COMPLETE").unlink()
    again = launch(2, *words, base=LAYOUT)
    assert again.wait() == 0, again.log()[-3000:]
    assert again.events("checkpoint")[0] == "resumed from step 20"
    assert checkpoint.is_dir()
    assert again.rewards(21, 30) == whole.rewards(21, 30)
    by_set = ["reward/train", "solve_rate/train", "reward/sums"]
    drawn = [[line[name] for name in by_set] for line in whole.metrics()[20:]]
    assert sum(train for train, *_ in drawn) > 0
    assert [[line[name] for name in by_set] for line in again.metrics()[-10:]] == drawn
