"""In bf16, gradients of a step's micro-batches add up in float32, where DeepSpeed shares gradients out."""

from __future__ import annotations

import dataclasses
import gc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from rank_support import VOCABULARY, make_model
from trainer_support import LAYOUT
from variant_support import TOKEN_MEAN

from free_ports import free_ports
from rltui.layout.load import load_layout
from rltui.layout.roles import Critic, Learner, accumulates_in_float32
from rltui.memory.from_layout import states_of
from trainers.data.batch import ADVANTAGES, ENGINE_LOG_PROBS, Sample, shard
from trainers.roles import learner as policy
from trainers.roles import zero
from trainers.roles.step_report import StepSums

if TYPE_CHECKING:
    from trainers.data.batch import MiniBatch

pytestmark = pytest.mark.trainers

MICRO_BATCHES = 8
EXACT = 1e-6
"""Relative to the sum of the micro-batches' gradients: what float32 loses of it."""
IN_BF16 = 1e-3
"""What bf16 loses of it, at least: it has 8 bits."""
AT_ONCE = 1.5e-2
"""What one pass over all samples differs, at most: its own sums are rounded elsewhere."""


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory, deepspeed_here: None) -> str:
    """A model's folder."""
    return make_model(tmp_path_factory.mktemp("model"))


def whole_batch() -> MiniBatch:
    """A step's batch of ``MICRO_BATCHES`` samples."""
    generator = torch.Generator().manual_seed(3)

    def sample() -> Sample:
        ids = torch.randint(VOCABULARY, (9,), generator=generator).tolist()
        worth = float(torch.randn((), generator=generator))
        return Sample(tuple(ids[:3]), tuple(ids[3:]), {ENGINE_LOG_PROBS: [-4.6] * 6, ADVANTAGES: worth})

    [batch] = shard([sample() for _ in range(MICRO_BATCHES)], [], 1, TOKEN_MEAN)[0].trained
    return batch


def lone_learner(path: str, words: str) -> policy.Learner:
    """A learner in bf16, unless ``words`` say otherwise, that is the only rank."""
    changes = [f"roles.learner.{word}" for word in words.split()]
    layout = load_layout(LAYOUT, ["roles.learner.gpus=[1]", "roles.learner.precision=bf16", *changes]).layout
    learner = policy.Learner(layout, 0, path)
    learner.load("127.0.0.1", free_ports(1)[0])
    return learner


def gradient(path: str, words: str, batch: MiniBatch) -> torch.Tensor:
    """The gradient [P] that the optimizer of a fresh learner steps with, in float64."""
    from deepspeed.utils import safe_get_full_grad

    learner = lone_learner(path, words)
    learner._accumulate(batch, StepSums(), False)
    engine, found = learner._engine, list[torch.Tensor]()
    step = engine.optimizer.step

    def look_and_step(*arguments: Any, **options: Any) -> Any:
        found.extend(safe_get_full_grad(parameter).double().flatten() for parameter in engine.module.parameters())
        return step(*arguments, **options)

    engine.optimizer.step = look_and_step
    learner.step()
    gc.collect()  # DeepSpeed's cycles of the learners before
    return torch.cat(found)


def apart(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The difference's norm over that of ``wanted``."""
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("stage", ["zero_stage=2", "zero_stage=3", "zero_stage=3 offload=all"])
def test_eight_micro_batches_add_up_to_their_sum(stage: str, model_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, words = whole_batch(), f"{stage} micro_batch=1"
    parts = [dataclasses.replace(batch, rows=rows) for rows in batch.rows.micro_batches(1)]
    assert len(parts) == MICRO_BATCHES
    wanted = torch.stack([gradient(model_path, words, part) for part in parts]).sum(dim=0)
    assert apart(gradient(model_path, words, batch), wanted) < EXACT
    assert apart(gradient(model_path, f"{stage} micro_batch=0", batch), wanted) < AT_ONCE
    monkeypatch.setattr(zero, "accumulates_in_float32", lambda _role: False)
    assert apart(gradient(model_path, words, batch), wanted) > IN_BF16


def writable_gib() -> float:
    """Address space of this process that a fork must promise again, touched or not."""
    parts = [line.split(maxsplit=2) for line in Path("/proc/self/maps").read_text().splitlines()]
    sizes = [[int(end, 16) for end in extent.split("-")] for extent, rights, _ in parts if rights == "rw-p"]
    return sum(end - start for start, end in sizes) / 2**30


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_bucket_of_a_small_model_is_small(stage: int, model_path: str) -> None:
    before = writable_gib()
    learner = lone_learner(model_path, f"zero_stage={stage}")
    learner._accumulate(whole_batch(), StepSums(), False)
    elements = sum(getattr(one, "ds_numel", one.numel()) for one in learner._engine.module.parameters())
    assert learner._engine.optimizer.reduce_bucket_size == elements
    assert writable_gib() - before < 0.5


@pytest.mark.parametrize(
    ("words", "in_float32", "gradients", "step_copy"),
    [
        ({"zero_stage": 2}, True, 4, 0),
        ({"zero_stage": 3}, True, 4, 4),
        ({"zero_stage": 3, "offload": "all"}, True, 4, 4),
        ({"zero_stage": 2, "offload": "optimizer"}, False, 2, 4),
        ({"zero_stage": 1}, False, 2, 4),
        ({"zero_stage": 2, "precision": "fp16"}, False, 2, 4),
        ({"zero_stage": 2, "precision": "fp32"}, False, 4, 0),
    ],
    ids=str,
)
def test_trainer_and_estimate_agree_on_where_they_do(
    words: dict[str, Any], in_float32: bool, gradients: float, step_copy: float
) -> None:
    train = load_layout(LAYOUT).layout.train
    settings = {"precision": "bf16", **words}
    for role in (Learner(model="m", **settings), Critic(**settings)):
        assert accumulates_in_float32(role) == in_float32
        config = zero.deepspeed_config(role, train, 64, has_gpu=True)
        assert config["data_types"] == ({"grad_accum_dtype": "fp32"} if in_float32 else {})
        assert (states_of(role).gradients, states_of(role).step_copy) == (gradients, step_copy)
