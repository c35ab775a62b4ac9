"""Distillation as a program: by both estimators the student comes to the teacher, and only by what that one says."""

from __future__ import annotations

import importlib.util
import os
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from learning import STEPS, check_learned
from trainer_support import ROOT, pid_of

from rltui.onnode import rundir

if TYPE_CHECKING:
    from trainer_support import Attempt

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

LAYOUT = ROOT / "layouts" / "local" / "opd-tiny.yaml"
WORDS = (f"train.steps={STEPS}", "checkpoint.every=50", "tracking.wandb=disabled")


def check_distilled(attempt: Attempt) -> None:
    assert attempt.wait() == 0, attempt.log()[-3000:]
    lines = attempt.metrics()
    assert max(line["parity_max_abs"] for line in lines) < 1e-4
    check_learned("opd", lines)


def test_the_student_learns_from_the_teachers_likeliest_tokens(launch: Callable[..., Attempt]) -> None:
    check_distilled(launch(1, *WORDS, base=LAYOUT))


def test_the_student_learns_from_sampled_tokens_alone_in_several_updates(launch: Callable[..., Attempt]) -> None:
    words = ["opd.estimator=sampled_token", "train.optimizer_steps=2", "train.learning_rate=3.0e-4"]
    check_distilled(launch(1, *WORDS, *words, base=LAYOUT))


@pytest.mark.vllm
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
def test_two_vllm_teachers_share_the_batch_and_one_that_dies_is_started_again(launch: Callable[..., Attempt]) -> None:
    """At another temperature than 1, which vLLM does not apply to prompts; the student's engine sleeps meanwhile."""
    pool = ["pools={student: {gpus: [1]}}", "roles.learner.gpus=[]", "roles.learner.pool=student"]
    pool += ["roles.rollout.pool=student", "roles.rollout.engines=0", "roles.rollout.sleep_while_training=true"]
    teachers = ["roles.teacher.engine=vllm", "roles.teacher.engines=2", "train.temperature=0.8"]
    attempt = launch(1, *WORDS, *pool, *teachers, "train.steps=70", "train.samples_per_prompt=5", base=LAYOUT)
    attempt.await_step(20)
    pid = pid_of(attempt, "teacher 1")
    os.kill(pid, 9)
    assert attempt.wait() == 0, attempt.log()[-3000:]
    lines = attempt.metrics()
    assert max(line["parity_max_abs"] for line in lines) < 1e-4
    assert attempt.mean_reward(1, 5) <= 0.40
    assert attempt.mean_reward(51, 60) >= attempt.mean_reward(1, 5) + 0.25
    assert statistics.fmean(line["reverse_kl"] for line in lines[50:60]) < 0.4 * lines[0]["reverse_kl"]
    died, back = attempt.events(rundir.RESTART)
    assert f"teacher 1 (pid {pid}" in died
    assert back.startswith(f"teacher 1 (pid {pid_of(attempt, 'teacher 1')} on ")


def test_a_teacher_that_knows_nothing_teaches_nothing(launch: Callable[..., Attempt]) -> None:
    """The negative control: a teacher equal to the student leaves it where it is."""
    words = ["roles.teacher.model=builtin/tiny-qwen3", "train.steps=40"]
    attempt = launch(1, *WORDS, *words, base=LAYOUT)
    assert attempt.wait() == 0, attempt.log()[-3000:]
    assert attempt.mean_reward(30, 40) <= 0.35
    assert max(abs(line["reverse_kl"]) for line in attempt.metrics()) < 0.2  # Adam walks on rounding errors


def test_a_teacher_with_other_tokens_is_refused_by_name(launch: Callable[..., Attempt], tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    import json
    import shutil
    from pathlib import Path

    from rltui.layout.load import load_layout
    from trainers.data.models import resolve_model

    layout = load_layout(LAYOUT).layout
    other = tmp_path_factory.mktemp("other") / "model"
    shutil.copytree(Path(resolve_model("builtin/tiny-qwen3", layout, lambda *_: None)), other)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["7"], vocabulary["8"] = vocabulary["8"], vocabulary["7"]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    attempt = launch(1, *WORDS, f"roles.teacher.model={other}", base=LAYOUT)
    assert attempt.wait() == 1
    assert "the teacher has another tokenizer than the learner: token '7'" in attempt.events("error")[0]


def test_the_teacher_scores_what_was_made_ahead_while_the_learners_train(launch: Callable[..., Attempt]) -> None:
    """A second for the teacher's scores of a step and one for its training: one after the other these would be two."""
    preamble = """
import time
from trainers.loop import Loop
from trainers.roles import processes
from trainers.roles.teacher import Teacher
optimize = Loop.optimize
def train_slowly(self, *arguments):
    time.sleep(1.0)
    return optimize(self, *arguments)
class Slow(Teacher):
    def score(self, rows):
        time.sleep(1.0)
        return super().score(rows)
Loop.optimize, processes.Teacher = train_slowly, Slow
"""
    attempt = launch(1, *WORDS, "train.async_steps=1", "train.steps=8", base=LAYOUT, preamble=preamble)
    assert attempt.wait() == 0, attempt.log()[-3000:]
    lines = attempt.metrics()
    assert lines[0]["time/total"] >= 2.0  # nothing was made ahead of the first
    assert all(line["time/total"] >= 1.0 for line in lines)
    assert statistics.median(line["time/total"] for line in lines[2:]) < 1.8
    assert all(line["reverse_kl"] > 0 for line in lines)
