"""What ROLL asserts when it reads its configuration."""

from __future__ import annotations

from rltui.check.frameworks import shared
from rltui.check.frameworks.assertion import Framework, choice, multiple, never
from rltui.check.frameworks.terms import Fact, Setting, above, absent, exactly, given, on, one_of

FRAMEWORK = Framework("roll", "https://github.com/alibaba/ROLL/tree/8eb27cc2")

_BASE, _WORKER = "roll/configs/base_config.py", "roll/configs/worker_config.py, WorkerConfig"
_AGENTIC = "roll/pipeline/agentic/agentic_config.py, AgenticConfig"
_TRAINER, _ENGINES = "actor_train.strategy_args", "actor_infer.strategy_args"
_CUT = f"{_TRAINER}.strategy_config."
_STAGES = Setting(f"{_CUT}pipeline_model_parallel_size", default=1)
_RANKS = Fact("trainer_gpus", "GPUs of the trainer") // (
    Setting(f"{_CUT}tensor_model_parallel_size", default=1)
    * _STAGES
    * Setting(f"{_CUT}context_parallel_size", default=1)
)
_TENSOR = Setting(f"{_ENGINES}.strategy_config.tensor_parallel_size", default=1)
_ENGINE_STAGES = Setting(f"{_ENGINES}.strategy_config.pipeline_parallel_size", default=1)
_ON_MEGATRON = one_of(f"{_TRAINER}.strategy_name", "megatron_train")
_AHEAD = Setting("async_generation_ratio")
_BATCH, _GROUP = Setting("rollout_batch_size"), Setting("train_env_manager.group_size")
_VALIDATED, _VALIDATION_GROUP = Setting("val_batch_size"), Setting("val_env_manager.group_size")

TABLE = (
    never(
        "F851",
        "Neither the length of a response nor that of a sequence is given.",
        f"{_BASE}, BaseConfig",
        (absent("response_length", "sequence_length"), given("rollout_batch_size")),
        Setting("response_length"),
        1024,
    ),
    choice(
        "F852",
        "ROLL generates with no such engine.",
        f"{_BASE}, BaseConfig",
        Setting(f"{_ENGINES}.strategy_name"),
        ("vllm", "sglang"),
        severity="warning",
    ),
    multiple(
        "F853",
        "The engines' devices are no multiple of an engine's.",
        _WORKER,
        (Fact("rollout_gpus", "GPUs of the engines"), _TENSOR * _ENGINE_STAGES),
        change=_TENSOR,
        when=(one_of(f"{_ENGINES}.strategy_name", "vllm"),),
    ),
    multiple(
        "F854",
        "The batch does not divide over Megatron's data-parallel ranks.",
        "roll/utils/config_utils.py, validate_megatron_batch_size",
        (_BATCH, _RANKS),
        when=(_ON_MEGATRON,),
    ),
    never(
        "F855",
        "Generation that runs ahead needs the scheduler's level 1.",
        f"{_BASE}, PPOConfig",
        (above(_AHEAD, 0), exactly(Setting("generate_opt_level", default=1), 0)),
        Setting("generate_opt_level"),
        1,
    ),
    never(
        "F856",
        "Teachers give the whole reward and a part of it at once.",
        f"{_BASE}, PPOConfig._handle_opd_mapping",
        (on("is_pure_opd"), on("use_opd")),
        Setting("use_opd"),
        "false",
    ),
    never(
        "F857",
        "A reference is configured where teachers take its place.",
        f"{_BASE}, PPOConfig._handle_opd_mapping",
        (on("use_opd"), given("reference.device_mapping")),
        Setting("reference.device_mapping"),
    ),
    multiple(
        "F858",
        "The trajectories of a step are no multiple of a group; ROLL asks for that since 2026.",
        _AGENTIC,
        (_BATCH, _GROUP),
        change=_BATCH,
        when=(above(_BATCH, 0),),
        severity="warning",
    ),
    multiple(
        "F859",
        "The trajectories of a validation are no multiple of a group; ROLL asks for that since 2026.",
        _AGENTIC,
        (_VALIDATED, _VALIDATION_GROUP),
        change=_VALIDATED,
        when=(above(_VALIDATED, 0),),
        severity="warning",
    ),
    multiple(
        "F860",
        "The trajectories of a validation are no multiple of its environments.",
        _AGENTIC,
        (_VALIDATED, Setting("val_env_manager.num_env_groups") * _VALIDATION_GROUP),
        change=_VALIDATED,
        when=(above(_VALIDATED, 0),),
    ),
    shared.layers("F861", _STAGES, _CUT, (_ON_MEGATRON,)),
)
