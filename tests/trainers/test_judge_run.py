"""A language model of the run grades answers: what it says is learned, and it may die, without a trace in the curve."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from learning import STEPS, check_learned
from trainer_support import ROOT, ask_status, kill_at, pid_of

from rltui.onnode import rundir

if TYPE_CHECKING:
    from pathlib import Path

    from trainer_support import Attempt

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

LAYOUT = ROOT / "layouts" / "local" / "grpo-with-judge-tiny.yaml"
MODEL_LAYOUT = ROOT / "layouts" / "local" / "grpo-with-reward-model-tiny.yaml"
WORDS = ("tracking.wandb=disabled",)
OF_EACH_STEP = "import trainers.samples; trainers.samples.INTERVAL_S = 0.0\n"
"""Answers of each step are written, however fast these are."""

OWN = """
import os, pathlib, tempfile
folder = pathlib.Path(tempfile.mkdtemp(dir={folder!r}))
(folder / "graders.py").write_text('''
def grade(prompt, response, answer, row, judge):
    said = judge.ask(prompt, max_tokens=4)
    assert judge.ask(prompt, max_tokens=1) is None, "it was cut"
    assert judge.ask(25 * prompt) is None, "it is longer than the context"
    assert judge.likelihood(prompt, "") is None, "there is nothing to score"
    return {{"same": float(response == said), "likely": judge.likelihood(prompt, response + "<eos>")}}
''')
os.environ["PYTHONPATH"] += os.pathsep + str(folder)
"""


def test_what_a_judge_says_is_learned_and_what_its_death_costs(launch: Callable[..., Attempt]) -> None:
    """It is started again without a trace in the curve, and ends the run by name where no restart is left."""
    one_restart = OF_EACH_STEP + "import trainers.roles.restarts as restarts; restarts.LIMIT = 1"
    attempt = launch(1, *WORDS, "train.steps=5000", "checkpoint.every=50", base=LAYOUT, preamble=one_restart)
    attempt.await_step(10)
    assert ask_status(attempt)[1]["queues"]["Judge Queue"]["maxsize"] == 256
    pid = pid_of(attempt, "judge 0")
    os.kill(pid, 9)
    attempt.await_step(STEPS)
    again = pid_of(attempt, "judge 0")
    assert again != pid
    os.kill(again, 9)
    assert attempt.wait() == 1
    lines = attempt.metrics()
    check_learned("grpo", lines)
    assert max(line["judge_failed_fraction"] for line in lines) < 0.05
    answers = [one for one in attempt.lines(rundir.SAMPLES) if one["step"] > STEPS - 20]
    assert sum(one["answer"] == one["right_answer"] for one in answers) > 0.7 * len(answers) > 0
    died, back = attempt.events(rundir.RESTART)
    assert f"judge 0 (pid {pid}" in died
    assert back.startswith(f"judge 0 (pid {again} on ")
    assert f"judge 0 (pid {again} on " in attempt.events("error")[-1]


def test_a_reward_model_is_learned_from_and_may_die_and_cards_that_divide_it_say_the_same(
    launch: Callable[..., Attempt],
) -> None:
    dies = OF_EACH_STEP + kill_at(11, "reward_model 0")
    attempt = launch(1, *WORDS, f"train.steps={STEPS}", base=MODEL_LAYOUT, preamble=dies)
    assert attempt.wait() == 0, attempt.log()[-3000:]
    lines = attempt.metrics()
    check_learned("grpo", lines)
    assert lines[-1]["reward_model_score"] > 0 > lines[0]["reward_model_score"]
    assert max(line["reward_model_failed_fraction"] for line in lines) == 0
    answers = [one for one in attempt.lines(rundir.SAMPLES) if one["step"] > STEPS - 20]
    assert sum(one["answer"] == one["right_answer"] for one in answers) > 0.5 * len(answers) > 0
    died, back = attempt.events(rundir.RESTART)
    assert died.startswith("reward_model 0 (pid ")
    assert back.startswith(f"reward_model 0 (pid {pid_of(attempt, 'reward_model 0')} on ")

    shutil.rmtree(attempt.run / rundir.CHECKPOINTS, ignore_errors=True)
    words = ["roles.reward_model.engines=2", "roles.reward_model.zero_stage=3", "hardware.gpus_per_node=4"]
    divided = launch(2, *WORDS, *words, "train.steps=2", base=MODEL_LAYOUT)
    assert divided.wait() == 0, divided.log()[-3000:]
    for name in ("reward", "reward_model_score"):
        assert [line[name] for line in divided.metrics()] == pytest.approx([line[name] for line in lines[:2]], abs=1e-5)


def test_a_function_of_ones_own_asks_the_judge_and_a_resume_is_judged_alike(
    launch: Callable[..., Attempt], tmp_path: Path
) -> None:
    """The whole run calls it in the trainer, the resumed one in a reward worker; a reward model adds to it."""
    words = [*WORDS, "data.reward=graders:grade", "grpo.advantage=gdpo", "train.steps=4", "checkpoint.every=2"]
    words += ["train.prompts_per_step=4", "data.judge.temperature=1.0"]
    model = "model: builtin/tiny-qwen3-reward-model, precision: fp32, context: 64, pool: graders"
    words += [f"roles.reward_model={{{model}}}", "roles.judge.pool=graders", "pools={graders: {gpus: [1]}}"]
    words += ["data.added_rewards={reward_model: 0.5}", "data.scoring.chat=false"]
    own = OWN.format(folder=str(tmp_path))
    whole = launch(1, *words, base=LAYOUT, preamble=own)
    assert whole.wait() == 0, whole.log()[-3000:]
    assert not whole.events("reward")
    # about one token in six is the judge's own, and likelihoods lie between; half a score comes on top
    assert 0.02 < whole.mean_reward(1, 4) < 2.0
    shutil.rmtree(whole.run / rundir.CHECKPOINTS / "step-000004")
    worker = ["roles.reward={workers: 1}", "hardware.cpus_per_node=4"]
    resumed = launch(2, *words, *worker, base=LAYOUT, preamble=own)
    assert resumed.wait() == 0, resumed.log()[-3000:]
    assert [line["step"] for line in resumed.metrics()] == [3, 4]
    assert not resumed.events("reward")
    assert "reward_latency_p99_s" in resumed.metrics()[-1]
    # questions come one by one, and a batch's other rows change the last digits of a likelihood
    assert resumed.rewards(3, 4) == pytest.approx(whole.rewards(3, 4), abs=1e-6)
    assert resumed.metrics()[-1]["loss"] == pytest.approx(whole.metrics()[-1]["loss"], abs=1e-5)
