"""A run with evaluations: they take longer than a collective may wait, and the training does not notice them at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from learning import LEARNING

from rltui.onnode import rundir
from waiting import slowness

if TYPE_CHECKING:
    from trainer_support import Attempt, Learned

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

TIMEOUT_S = 10.0
"""Of collectives; longer on a machine that is slow now, where ranks come to them one long after the other."""
SHORT = [*LEARNING, "train.steps=6", "checkpoint.every=0", "tracking.wandb=disabled"]
EVALUATED = [
    "data.eval=builtin/sort-digits", "data.eval_every=4", "data.eval_prompts=100", "data.eval_samples=4",
    "data.eval_temperature=1.0",
]  # fmt: skip


def hasty(timeout_s: float, evaluation_s: float) -> str:
    """A preamble: collectives wait ``timeout_s`` at most, and the second evaluation takes ``evaluation_s`` at least."""
    return f"""
import datetime, time
from trainers.evaluations import Evaluations
from trainers.roles import processes
from trainers.roles.learner import Learner

class Hasty(Learner):
    def load(self, host, port):
        took = super().load(host, port)
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import _set_pg_timeout
        _set_pg_timeout(datetime.timedelta(seconds={timeout_s}))
        control = dist.new_group()
        _set_pg_timeout(datetime.timedelta(seconds=1), control)
        if self._rank == 0:
            try:
                dist.all_reduce(__import__("torch").ones(1), group=control)  # rank 1 does not come
            except RuntimeError as error:
                assert "imed out" in str(error), error
            else:
                raise AssertionError("a collective that lacks a rank did not time out")
        return took

processes.Learner = Hasty
ask, times = Evaluations._ask, []

def slow(self, *asked):
    times.append(1)
    time.sleep({evaluation_s} if len(times) == 2 else 0)
    return ask(self, *asked)

Evaluations._ask = slow
"""


def test_an_evaluation_may_take_longer_than_collectives_and_changes_nothing(
    learned: Learned, launch: Callable[..., Attempt]
) -> None:
    timeout_s = TIMEOUT_S * slowness()
    evaluation_s = 1.4 * timeout_s
    evaluated = launch(1, *SHORT, *EVALUATED, preamble=hasty(timeout_s, evaluation_s))
    assert evaluated.wait() == 0, evaluated.log()[-3000:]

    lines = evaluated.metrics()
    assert [line["step"] for line in lines] == list(range(7))
    found = [line for line in lines if "eval/reward_mean" in line]
    assert [line["step"] for line in found] == [0, 4, 6]
    assert lines[4]["time/evaluate"] > evaluation_s
    assert lines[4]["time/total"] < lines[4]["time/evaluate"]
    for name in ("reward", "loss", "grad_norm", "parity_max_abs", "weight_version"):
        assert [line[name] for line in lines[1:]] == [line[name] for line in learned.attempt.metrics()[:6]]

    for line in found:  # 0.2 by chance, of 400 answers; the best of four finds more
        assert line["eval/pass_at_1"] == pytest.approx(line["eval/reward_mean"])
        assert 0.02 < line["eval/pass_at_1"] < line["eval/pass_at_2"] < line["eval/pass_at_4"] < 1.0
        assert 1.0 <= line["eval/length_mean"] <= 4.0
    assert len({line["eval/pass_at_4"] for line in found}) > 1  # other weights, other answers
    assert evaluated.log().count("evaluation after step ") == 3
    answers = (evaluated.run / rundir.EVALUATIONS / "step-000004.jsonl").read_text().splitlines()
    assert len(answers) == 64
    first = json.loads(answers[0])
    assert first["reward"] == float(first["answer"] == first["right_answer"])
