"""What ms-swift, whose GRPO is made from TRL's, refuses at its start, or does otherwise than it was asked."""

from __future__ import annotations

from rltui.check.frameworks import shared
from rltui.check.frameworks.assertion import Framework, at_least, multiple, never
from rltui.check.frameworks.terms import (
    Constant,
    Fact,
    Setting,
    above,
    absent,
    fact,
    given,
    on,
    one_of,
)

FRAMEWORK = Framework("ms-swift", "https://github.com/modelscope/ms-swift", "--{key}={value}")

_ARGUMENTS = "swift/arguments/rlhf_args.py, RLHFArguments"
_GRPO = fact("algorithm", "grpo")
_GROUP = Setting("num_generations", default=8)
_STAGES = Setting("pipeline_model_parallel_size", default=1)
_GPUS = Fact("trainer_gpus", "training processes")
_ROWS = Setting("per_device_train_batch_size", default=1)
_ROUNDS = Setting("steps_per_generation", "gradient_accumulation_steps")
_GENERATED = Setting("generation_batch_size")
_TENSOR = Setting("vllm_tensor_parallel_size", default=1)
_ON_MEGATRON = given("tensor_model_parallel_size", "pipeline_model_parallel_size", "global_batch_size")
_SHARED = one_of("vllm_mode", "colocate")

TABLE = (
    at_least(
        "F351",
        "A group of one sample has no advantage.",
        _ARGUMENTS,
        (Setting("num_generations"), Constant(2)),
        when=(_GRPO, absent("teacher_model", "teacher_model_server", "teacher.model")),
    ),
    multiple(
        "F352",
        "The samples of a generation do not make whole groups.",
        _ARGUMENTS,
        (_ROWS * _GPUS * _ROUNDS, _GROUP),
        when=(_GRPO, absent(*_GENERATED.names, "global_batch_size")),
    ),
    multiple(
        "F353",
        "The samples of a generation do not make whole groups.",
        _ARGUMENTS,
        (_GENERATED, _GROUP),
        when=(_GRPO,),
    ),
    never(
        "F354",
        "A server is named, and the engine is to share the trainer's GPUs: the server is left alone.",
        _ARGUMENTS,
        (_GRPO, on("use_vllm"), _SHARED, given("vllm_server_host", "vllm_server_base_url")),
        Setting("vllm_mode"),
        "server",
        severity="warning",
    ),
    never(
        "F355",
        "Several GPUs are visible to one process, which vLLM on the trainer's GPUs cannot share: NPROC_PER_NODE is not "
        "set.",
        "swift/rlhf_trainers, GRPOTrainer",
        (_GRPO, on("use_vllm"), _SHARED, above(Fact("visible_gpus", "GPUs"), 1), absent("NPROC_PER_NODE")),
        Setting("NPROC_PER_NODE"),
    ),
    multiple(
        "F356",
        "vLLM's tensor parallelism does not divide the training processes that it shares GPUs with.",
        "swift/rlhf_trainers, prepare_vllm",
        (_GPUS, _TENSOR),
        when=(_GRPO, on("use_vllm"), _SHARED),
    ),
    shared.layers("F357", _STAGES, when=(_ON_MEGATRON,)),
)
