"""Distillation as a program: by both estimators the student comes to the teacher, and only by what that one says."""

from __future__ import annotations

import importlib.util
import re
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from learning import STEPS, check_learned
from trainer_support import ROOT, kill_at, pid_of, trains_beside

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


TEACHERS = ("roles.teacher.engines=2", "hardware.gpus_per_node=4")
SAMPLED = (
    *WORDS, *TEACHERS, "opd.estimator=sampled_token", "train.optimizer_steps=2",
    "train.learning_rate=3.0e-4", "roles.rollout.max_concurrency=64",  # teachers are asked four times a step
)  # fmt: skip
DISTURBED_STEPS = 8
CONTROL_STEPS = 40


def test_the_student_learns_from_sampled_tokens_alone_in_several_updates_also_if_a_teacher_dies(
    launch: Callable[..., Attempt],
) -> None:
    """The one that dies is started again once, whatever it was asked meanwhile: that costs nothing but time."""
    undisturbed = launch(1, *SAMPLED, base=LAYOUT)
    check_distilled(undisturbed)
    shutil.rmtree(undisturbed.run / rundir.CHECKPOINTS)
    attempt = launch(2, *SAMPLED, f"train.steps={DISTURBED_STEPS}", base=LAYOUT, preamble=kill_at(3, "teacher 1"))
    assert attempt.wait() == 0, attempt.log()[-3000:]
    lines = attempt.metrics()
    assert [line["step"] for line in lines] == list(range(1, DISTURBED_STEPS + 1))
    assert undisturbed.rewards(1, DISTURBED_STEPS) == attempt.rewards(1, DISTURBED_STEPS)
    assert undisturbed.metrics()[DISTURBED_STEPS - 1]["loss"] == pytest.approx(lines[-1]["loss"], abs=1e-6)
    gone, back = attempt.events(rundir.RESTART)
    found = re.match(r"teacher 1 \(pid (\d+) on ", gone)
    assert found is not None
    assert "starting it again (1 of 3 restarts within an hour)" in gone
    assert gone in attempt.log()
    assert back.startswith(f"teacher 1 (pid {pid_of(attempt, 'teacher 1')} on ")
    assert pid_of(attempt, "teacher 1") != int(found[1])
    assert not Path("/proc", found[1]).exists()


@pytest.mark.vllm
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
def test_the_student_learns_from_a_vllm_teacher_that_dies_and_is_started_again(launch: Callable[..., Attempt]) -> None:
    """At another temperature than 1, which vLLM does not apply to prompts; the student's engine sleeps meanwhile."""
    pool = ["pools={student: {gpus: [1]}}", "roles.learner.gpus=[]", "roles.learner.pool=student"]
    pool += ["roles.rollout.pool=student", "roles.rollout.engines=0", "roles.rollout.sleep_while_training=true"]
    words = ["roles.teacher.engine=vllm", "train.temperature=0.8", "train.steps=40", "train.samples_per_prompt=5"]
    attempt = launch(1, *WORDS, *pool, *words, base=LAYOUT, preamble=kill_at(11, "teacher 0"))
    assert attempt.wait() == 0, attempt.log()[-3000:]
    lines = attempt.metrics()
    assert max(line["parity_max_abs"] for line in lines) < 1e-4
    assert attempt.mean_reward(1, 5) <= 0.40
    assert attempt.mean_reward(31, 40) >= attempt.mean_reward(1, 5) + 0.25
    assert statistics.fmean(line["reverse_kl"] for line in lines[30:]) < 0.4 * lines[0]["reverse_kl"]
    died, back = attempt.events(rundir.RESTART)
    assert died.startswith("teacher 0 (pid ")
    assert back.startswith(f"teacher 0 (pid {pid_of(attempt, 'teacher 0')} on ")


def test_a_teacher_that_knows_nothing_teaches_nothing_and_scores_while_the_learners_train(
    launch: Callable[..., Attempt],
) -> None:
    """The negative control: a teacher equal to the student leaves it where it is."""
    words = ["roles.teacher.model=builtin/tiny-qwen3", f"train.steps={CONTROL_STEPS}", "train.async_steps=1"]
    beside = trains_beside("trainers.opd:Opd", "ask_teacher", steps=CONTROL_STEPS)
    attempt = launch(1, *WORDS, *words, base=LAYOUT, preamble=beside)
    assert attempt.wait() == 0, attempt.log()[-3000:]
    assert attempt.mean_reward(CONTROL_STEPS - 10, CONTROL_STEPS) <= 0.35
    assert max(abs(line["reverse_kl"]) for line in attempt.metrics()) < 0.2  # Adam walks on rounding errors


def test_a_teacher_with_other_tokens_is_refused_by_name(launch: Callable[..., Attempt], tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    import json

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
