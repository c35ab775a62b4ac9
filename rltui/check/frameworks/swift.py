"""What ms-swift, whose GRPO is made from TRL's, refuses at its start, or does otherwise than it was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.check.frameworks import shared
from rltui.check.frameworks.assertion import Framework, at_least, choice, equal, multiple, never
from rltui.check.frameworks.terms import (
    Constant,
    Fact,
    Setting,
    Term,
    above,
    absent,
    either,
    exactly,
    fact,
    given,
    neither,
    off,
    on,
    one_of,
)

if TYPE_CHECKING:
    from rltui.check.frameworks.terms import Asked

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
_SAMPLES = Setting("global_batch_size", default=16) * Setting("steps_per_generation", default=1)
_RANKS = _GPUS // (
    Setting("tensor_model_parallel_size", default=1) * _STAGES * Setting("context_parallel_size", default=1)
)
_MICRO = Setting("micro_batch_size", default=1)


class _Count(Term):
    """How many words several lists have together; None where one of them is not known."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def setting(self) -> Setting:
        """The first list."""
        return Setting(self.names[0])

    def value(self, asked: Asked) -> int | None:
        """The number of words; a JSON list in one word is not counted."""
        words = [str(word) for name in self.names for word in asked.settings.words(name)]
        unknown = set(asked.settings.unknown()) & set(self.names)
        return None if unknown or not words or any(word.startswith("[") for word in words) else len(words)

    def words(self, asked: Asked) -> str:
        """The number and the lists."""
        return f"{self.value(asked)} words of {' and '.join(self.names)}"


def _one_process(asked: Asked) -> bool:
    return asked.facts.trainer_gpus is None


def _rewards_length(asked: Asked) -> bool:
    return "soft_overlong" in asked.settings.words("reward_funcs")


_ALONE = (_one_process, above(Fact("visible_gpus", "GPUs"), 1), absent("NPROC_PER_NODE"))
"""One process without torchrun, which spreads the model over all GPUs that it sees."""
_TRAINS_ADAPTERS = neither(*(one_of(name, "full", default="lora") for name in ("tuner_type", "train_type", "sft_type")))

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
        (_GRPO, on("use_vllm"), _SHARED, *_ALONE),
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
    never(
        "F358",
        "A place for vLLM is named, and vLLM is not switched on: versions before December 2025 generate without it.",
        _ARGUMENTS,
        (one_of("rlhf_type", "grpo", "gkd"), given("vllm_mode"), off("use_vllm"), absent("train.gpus")),
        Setting("use_vllm"),
        "true",
        severity="warning",
    ),
    choice(
        "F359",
        "GRPO cuts prompts from the left or leaves them out.",
        _ARGUMENTS,
        Setting("truncation_strategy"),
        ("left", "delete"),
        (_GRPO,),
    ),
    never(
        "F360",
        "Generation is to run ahead of the training, which takes a vLLM server.",
        _ARGUMENTS,
        (_GRPO, on("async_generate"), _SHARED),
        Setting("async_generate"),
        "false",
    ),
    never(
        "F361",
        "The reward soft_overlong needs soft_cache_length.",
        _ARGUMENTS,
        (_GRPO, _rewards_length, absent("soft_cache_length")),
        Setting("soft_cache_length"),
    ),
    never(
        "F362",
        "Liger's loss has neither two-sided clips nor rows without padding, cut sequences, or entropy.",
        _ARGUMENTS,
        (
            _GRPO,
            on("use_liger_kernel"),
            either(
                given("delta"),
                on("padding_free"),
                on("log_entropy"),
                above(Setting("sequence_parallel_size"), 1),
            ),
        ),
        Setting("use_liger_kernel"),
        "false",
    ),
    never(
        "F363",
        "A reference model is named beside adapters, whose reference is the model without them.",
        _ARGUMENTS,
        (
            one_of("rlhf_type", "grpo", "dpo", "kto", "ppo"),
            given("ref_model"),
            _TRAINS_ADAPTERS,
            neither(exactly(Setting("beta", default=0.04), 0)),
            neither(_ON_MEGATRON),
        ),
        Setting("ref_model"),
    ),
    equal(
        "F364",
        "Rewards and their weights are not the same number.",
        "swift/rlhf_trainers/grpo_trainer.py, GRPOTrainer._prepare_rewards",
        (_Count("reward_funcs", "reward_model"), _Count("reward_weights")),
        when=(_GRPO, given("reward_weights"), neither(on("use_gym_env")), absent("gym_env")),
    ),
    never(
        "F365",
        "The engine is to be a server, and none is named.",
        _ARGUMENTS,
        (
            _GRPO,
            on("use_vllm"),
            one_of("vllm_mode", "server"),
            absent("vllm_server_host", "vllm_server_base_url", "train.gpus"),
        ),
        Setting("vllm_server_host"),
    ),
    never(
        "F366",
        "Several GPUs are visible to one process, over which DeepSpeed does not spread a model: NPROC_PER_NODE is not "
        "set.",
        "swift/arguments/sft_args.py, SftArguments._init_deepspeed",
        (given("deepspeed"), *_ALONE),
        Setting("NPROC_PER_NODE"),
    ),
    never(
        "F367",
        "FSDP and DeepSpeed are both to divide the model.",
        "swift/arguments/sft_args.py, SftArguments._init_fsdp",
        (given("fsdp"), given("deepspeed")),
        Setting("fsdp"),
    ),
    multiple(
        "F368",
        "The samples of a generation do not make whole groups.",
        "swift/megatron/arguments/megatron_args.py, resolve_generation_batch_size",
        (_SAMPLES, _GROUP),
        when=(_GRPO, given("global_batch_size"), absent("generation_batch_size")),
    ),
    multiple(
        "F369",
        "The prompts of a generation do not divide over Megatron's data-parallel ranks.",
        "swift/megatron/arguments/megatron_args.py, validate_batch_dp_alignment",
        (_SAMPLES // _GROUP, _RANKS),
        when=(_GRPO, given("global_batch_size"), absent("generation_batch_size")),
        severity="warning",
    ),
    multiple(
        "F370",
        "The batch is no multiple of the rows of Megatron's data-parallel ranks.",
        "swift/megatron/arguments/megatron_args.py, _init_global_batch_size",
        (Setting("global_batch_size"), _MICRO * _RANKS),
        when=(_ON_MEGATRON,),
    ),
    never(
        "F371",
        "A teacher is to be loaded, and a server has one.",
        _ARGUMENTS,
        (given("teacher_model"), given("teacher_model_server")),
        Setting("teacher_model"),
    ),
    never(
        "F372",
        "Megatron's steps are train_iters: max_steps is an argument of swift, and megatron refuses it.",
        "swift/pipelines/base.py, SwiftPipeline._parse_args",
        (_ON_MEGATRON, given("max_steps")),
        Setting("max_steps"),
    ),
)
