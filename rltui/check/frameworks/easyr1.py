"""What EasyR1's trainer and workers refuse at their start."""

from __future__ import annotations

from rltui.check.frameworks import shared
from rltui.check.frameworks.assertion import Framework, at_least, multiple
from rltui.check.frameworks.terms import HEADS, Constant, Fact, Setting, one_of

FRAMEWORK = Framework("easyr1", "https://github.com/hiyouga/EasyR1")

_TRAINER = "verl/trainer/ray_trainer.py, RayPPOTrainer.__init__"
_WORKERS = "verl/workers/fsdp_workers.py, FSDPWorker"
_GPUS = Fact("trainer_gpus", "GPUs of the trainer")
_BATCH = Setting("data.rollout_batch_size")
_SAMPLES = Setting("worker.rollout.n", default=1)
_GLOBAL = Setting("worker.actor.global_batch_size")
_MICRO = Setting("worker.actor.micro_batch_size_per_device_for_update")
_SCORED = Setting("worker.actor.micro_batch_size_per_device_for_experience")
_ULYSSES = Setting("worker.actor.ulysses_size", default=1)
_TENSOR = Setting("worker.rollout.tensor_parallel_size")
_SHARE = _GLOBAL * _SAMPLES // (_GPUS // _ULYSSES)

TABLE = (
    multiple(
        "F151",
        "The batch is no multiple of the global batch.",
        _TRAINER,
        (_BATCH, _GLOBAL),
    ),
    multiple(
        "F152",
        "The samples of a step are no multiple of the rows of a pass for log-probs.",
        _TRAINER,
        (_BATCH * _SAMPLES, _SCORED),
    ),
    at_least(
        "F153",
        "The estimator compares the samples of a prompt with each other, and there is one.",
        _TRAINER,
        (_SAMPLES, Constant(2)),
        when=(one_of("algorithm.adv_estimator", "grpo", "rloo"),),
    ),
    multiple(
        "F154",
        "The prompts of a step do not divide over the GPUs.",
        "verl/protocol.py, DataProto.chunk",
        (_BATCH, _GPUS),
        severity="warning",
    ),
    at_least(
        "F155",
        "The global batch leaves a rank without a sample.",
        _WORKERS,
        (_SHARE, Constant(1)),
    ),
    multiple(
        "F156",
        "A rank's share of the global batch is no multiple of its micro-batch.",
        _WORKERS,
        (_SHARE, _MICRO),
    ),
    multiple(
        "F157",
        "The Ulysses size does not divide the GPUs.",
        _WORKERS,
        (_GPUS, _ULYSSES),
    ),
    multiple(
        "F158",
        "Tensor parallelism of the engines does not divide the GPUs.",
        _WORKERS,
        (_GPUS, _TENSOR),
    ),
    multiple(
        "F159",
        "The Ulysses size does not divide the model's attention heads.",
        _WORKERS,
        (HEADS, _ULYSSES),
    ),
    shared.visible("F160", _TRAINER, Setting("trainer.n_gpus_per_node")),
)
