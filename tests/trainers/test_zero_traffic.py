"""What DeepSpeed is told of its traffic is what ``plan`` and the memory estimate count with."""

from __future__ import annotations

from typing import Any

import pytest
from trainer_support import LAYOUT

from rltui.hardware.gpus import find_gpu
from rltui.hardware.models import known_model
from rltui.hardware.parameters import count_parameters
from rltui.layout.load import load_layout
from rltui.memory.from_layout import sharding_of
from rltui.memory.settings import DEEPSPEED_BF16
from rltui.memory.states import ZeroTraffic, gathered_gib, zero_traffic
from rltui.plan import training
from rltui.plan.request import Request
from rltui.plan.setup import Training
from trainers.roles.zero import deepspeed_config

pytestmark = pytest.mark.trainers

MODEL = "Qwen/Qwen2.5-7B"


def told(stage: int, offload: str) -> tuple[Any, Any]:
    """The layout, and what DeepSpeed is told of ZeRO for it."""
    words = [f"zero_stage={stage}", f"offload={offload}", "precision=bf16"]
    layout = load_layout(LAYOUT, [f"roles.learner.{word}" for word in words]).layout
    model = known_model(MODEL)
    assert model is not None
    trained = count_parameters(model).total
    config = deepspeed_config(layout.roles.learner, layout.train, model.hidden, trained=trained, has_gpu=True)
    return layout, config["zero_optimization"]


@pytest.mark.parametrize(
    ("stage", "offload", "overlaps", "buckets"),
    [
        (1, "none", False, 1),
        (2, "none", True, 2),
        (2, "optimizer", False, 1),
        (3, "none", True, 2),
        (3, "optimizer", True, 2),
        (3, "all", True, 2),
    ],
)
def test_deepspeed_and_the_estimate_are_told_the_same(stage: int, offload: str, overlaps: bool, buckets: int) -> None:
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    layout, zero = told(stage, offload)
    taken = DeepSpeedZeroConfig(**zero)  # which refuses names that it does not know
    assert taken.overlap_comm is overlaps
    assert taken.reduce_bucket_size == 3584**2
    assert taken.prefetch_bucket_size == (3584**2 * 9 // 10 if stage == 3 else 0)
    model = known_model(MODEL)
    assert model is not None
    parts = gathered_gib(model, DEEPSPEED_BF16, sharding_of(layout, "learner"), trained=True)
    assert parts["buffers"] * 2**30 == pytest.approx(buckets * taken.reduce_bucket_size * 2)


def test_buckets_are_neither_tiny_nor_larger_than_the_model_nor_than_deepspeeds_own() -> None:
    assert zero_traffic(2, 512).bucket == 10**7
    assert zero_traffic(2, 512, 70_000).bucket == 70_000
    assert zero_traffic(3, 40_000).bucket == 5 * 10**8


@pytest.mark.parametrize("stage", [2, 3])
def test_plan_adds_up_what_does_not_overlap(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, gpu = known_model(MODEL), find_gpu("A100-80GB")
    assert model is not None
    assert gpu is not None
    request = Request(model_name=MODEL, model=model, gpu=gpu, nodes=2, gpus_per_node=8)
    learner = Training(gpus=(8, 8), zero_stage=stage, micro_batch=1, gradient_checkpointing=True)
    together = training.train_s(request, learner)[0]
    apart = ZeroTraffic(overlaps=False, bucket=1, buckets=1, prefetch=0)
    monkeypatch.setattr(training, "zero_traffic", lambda *_: apart)
    after = training.train_s(request, learner)[0]
    assert 1.01 * together < after < 2 * together
