"""What slime (and miles, which is made from it) asserts before its first step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rltui.check.frameworks import shared
from rltui.check.frameworks.assertion import Framework, at_least, choice, equal, multiple, never
from rltui.check.frameworks.terms import (
    HEADS,
    LAYERS,
    Constant,
    Fact,
    Setting,
    Shape,
    above,
    absent,
    exactly,
    fact,
    given,
    off,
    on,
    one_of,
)

if TYPE_CHECKING:
    from rltui.check.frameworks.terms import Asked, Condition

FRAMEWORK = Framework("slime", "https://github.com/THUDM/slime/tree/624b824a8", "--{key}={value}", dashes=True)

_ARGUMENTS = "slime/utils/arguments.py, slime_validate_args"
_SCHEDULE = "slime/utils/dp_schedule.py, build_dp_schedule"

_GPUS = Fact("trainer_gpus", "GPUs of the actor")
_PROMPTS = Setting("rollout_batch_size")
_SAMPLES = Setting("n_samples_per_prompt", default=1)
_GLOBAL = Setting("global_batch_size")
_STEPS = Setting("num_steps_per_rollout")
_MICRO = Setting("micro_batch_size", default=1)
_ENGINE = Setting("rollout_num_gpus_per_engine", default=1)
_STAGES = Setting("pipeline_model_parallel_size", default=1)
_EXPERTS = Setting("expert_model_parallel_size", default=1)
_EXPERT_TENSOR = Setting("expert_tensor_parallel_size")
_CUT = Setting("tensor_model_parallel_size", default=1) * _STAGES * Setting("context_parallel_size", default=1)
_OVERSAMPLED = Setting("over_sampling_batch_size")
_CONTEXT, _PROMPT = Setting("rollout_max_context_len"), Setting("rollout_max_prompt_len")
_TRAINS = off("debug_rollout_only")
_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)[bB](?![a-zA-Z\d])")


def _other_size(name: str) -> Condition:
    """A folder of checkpoints whose name counts other parameters than the model's."""

    def is_other(asked: Asked) -> bool:
        own, other = (
            set(_SIZE.findall("/".join(asked.settings.text(key).rstrip("/").split("/")[-2:])))
            for key in ("hf_checkpoint", name)
        )
        return bool(own and other) and not own & other

    return is_other


TABLE = (
    equal(
        "F201",
        "The global batch is not what the steps of a rollout make it.",
        _ARGUMENTS,
        (_GLOBAL, _PROMPTS * _SAMPLES // _STEPS),
        when=(given("num_steps_per_rollout"),),
    ),
    at_least(
        "F202",
        "Over-sampling draws fewer prompts than a rollout needs.",
        _ARGUMENTS,
        (_OVERSAMPLED, _PROMPTS),
        change=_OVERSAMPLED,
    ),
    at_least(
        "F203",
        "A rollout has fewer samples than one optimizer step takes.",
        _SCHEDULE,
        (_PROMPTS * _SAMPLES, _GLOBAL),
        when=(_TRAINS, absent("num_steps_per_rollout", "custom_convert_samples_to_train_data_path")),
    ),
    multiple(
        "F204",
        "The global batch does not divide over the data-parallel ranks and their micro-batches.",
        _SCHEDULE,
        (_GLOBAL, _GPUS // _CUT * _MICRO),
        when=(
            _TRAINS,
            off("use_dynamic_batch_size"),
            off("use_dynamic_global_batch_size"),
            off("calculate_per_token_loss"),
            given("micro_batch_size"),
        ),
    ),
    multiple(
        "F205",
        "Megatron's parallel sizes do not divide the actor's GPUs.",
        "Megatron-LM, initialize_model_parallel",
        (_GPUS, _CUT),
        change=Setting("actor_num_gpus_per_node"),
        when=(_TRAINS,),
    ),
    never(
        "F206",
        "KL is penalized in the reward and in the loss.",
        _ARGUMENTS,
        (above(Setting("kl_coef", default=0), 0), above(Setting("kl_loss_coef", default=0), 0)),
        Setting("kl_coef"),
        0,
    ),
    never(
        "F207",
        "REINFORCE++ without normalized advantages.",
        _ARGUMENTS,
        (
            one_of("advantage_estimator", "reinforce_plus_plus", "reinforce_plus_plus_baseline"),
            absent("normalize_advantages"),
        ),
        Setting("normalize_advantages"),
        "",
    ),
    never(
        "F208",
        "Truncated importance sampling is asked for while the engine's log-probs are taken as the old ones.",
        _ARGUMENTS,
        (on("use_rollout_logprobs"), on("use_tis")),
        Setting("use_tis"),
    ),
    never(
        "F209",
        "Dynamic batches have no token budget.",
        _ARGUMENTS,
        (on("use_dynamic_batch_size"), absent("max_tokens_per_gpu")),
        Setting("max_tokens_per_gpu"),
    ),
    never(
        "F210",
        "Nothing says how long to train: neither rollouts nor epochs.",
        _ARGUMENTS,
        (absent("num_rollout"), absent("num_epoch"), given("rollout_batch_size")),
        Setting("num_rollout"),
    ),
    at_least(
        "F211",
        "Prompts may fill the whole context, so that no token is generated.",
        _ARGUMENTS,
        (_CONTEXT, _PROMPT + Constant(1)),
    ),
    never(
        "F212",
        "Checkpoints are to be saved nowhere.",
        _ARGUMENTS,
        (given("save_interval"), absent("save")),
        Setting("save"),
    ),
    never(
        "F213",
        "Distillation does not say where its teacher is.",
        _ARGUMENTS,
        (on("use_opd"), absent("opd_type")),
        Setting("opd_type"),
    ),
    never(
        "F214",
        "A teacher is loaded by the trainer, and served by SGLang too.",
        _ARGUMENTS,
        (on("use_opd"), one_of("opd_type", "sglang"), given("opd_teacher_load")),
        Setting("opd_teacher_load"),
    ),
    multiple(
        "F215",
        "The engines' GPUs are no multiple of an engine's.",
        "slime/ray/rollout.py, start_rollout_servers",
        (Fact("rollout_gpus", "GPUs of the engines"), _ENGINE),
        when=(above(Fact("rollout_gpus", "GPUs"), 0), absent("sglang_config")),
    ),
    never(
        "F216",
        "SGLang is to split its data without attention in parallel over data.",
        "slime/backends/sglang_utils/arguments.py, sglang_validate_args",
        (
            above(Setting("sglang_dp_size", "sglang_data_parallel_size", default=1), 1),
            absent("sglang_enable_dp_attention"),
        ),
        Setting("sglang_enable_dp_attention"),
        "",
    ),
    never(
        "F217",
        "Rollouts are greedy: a temperature of zero is no policy to learn from.",
        _ARGUMENTS,
        (exactly(Setting("rollout_temperature"), 0), _TRAINS, fact("dialect", "slime")),
        Setting("rollout_temperature"),
        1,
    ),
    multiple(
        "F218",
        "The last samples of a rollout are dropped: they fill no optimizer step.",
        _SCHEDULE,
        (_PROMPTS * _SAMPLES, _GLOBAL),
        when=(
            _TRAINS,
            off("use_dynamic_global_batch_size"),
            absent("num_steps_per_rollout", "custom_convert_samples_to_train_data_path"),
        ),
        severity="warning",
    ),
    choice(
        "F219",
        "slime knows no such estimator.",
        "slime/utils/arguments.py, get_slime_extra_args_provider",
        Setting("advantage_estimator"),
        (
            "grpo",
            "gspo",
            "cispo",
            "reinforce_plus_plus",
            "reinforce_plus_plus_baseline",
            "ppo",
            "on_policy_distillation",
        ),
        (_TRAINS, absent("custom_advantage_function_path")),
        severity="warning",
    ),
    choice(
        "F220",
        "slime estimates KL in no such way.",
        "slime/utils/arguments.py, get_slime_extra_args_provider",
        Setting("kl_loss_type"),
        ("low_var_kl", "k1", "k2", "k3"),
    ),
    never(
        "F221",
        "Differences of weights travel over disk only.",
        _ARGUMENTS,
        (
            one_of("update_weight_mode", "delta"),
            one_of("update_weight_transport", "nccl", default="nccl"),
            fact("dialect", "slime"),
        ),
        Setting("update_weight_transport"),
        "disk",
    ),
    never(
        "F222",
        "Differences of weights are to go to engines on the trainer's own GPUs, which need none.",
        _ARGUMENTS,
        (one_of("update_weight_mode", "delta"), on("colocate"), fact("dialect", "slime")),
        Setting("update_weight_mode"),
        "full",
    ),
    never(
        "F223",
        "Rollouts are to be made alone and training is to be done alone, at once.",
        _ARGUMENTS,
        (on("debug_rollout_only"), on("debug_train_only")),
        Setting("debug_train_only"),
    ),
    never(
        "F224",
        "Epochs are counted of a dataset that is switched off.",
        _ARGUMENTS,
        (given("num_epoch"), absent("num_rollout"), on("disable_rollout_global_dataset")),
        Setting("num_epoch"),
    ),
    never(
        "F225",
        "Evaluations are asked for, and nothing to evaluate on.",
        _ARGUMENTS,
        (given("eval_interval"), absent("eval_prompt_data", "eval_config"), fact("dialect", "slime")),
        Setting("eval_prompt_data"),
    ),
    shared.experts("F226", _GPUS, (_EXPERTS, _EXPERT_TENSOR, _STAGES), (_TRAINS,)),
    shared.layers("F227", _STAGES, when=(_TRAINS,)),
    *(
        equal(
            code,
            "Megatron's arguments are not those of the model in --hf-checkpoint.",
            "slime/backends/megatron_utils/arguments.py, _hf_validate_args",
            (setting, shape),
            change=setting,
        )
        for code, setting, shape in (
            ("F228", Setting("num_layers"), LAYERS),
            ("F229", Setting("hidden_size"), Shape("hidden", "of hidden size")),
            ("F230", Setting("num_attention_heads"), HEADS),
        )
    ),
    never(
        "F231",
        "Samples that are as old as allowed are trained on in several steps, and each makes them older.",
        "miles/utils/arguments.py, a notice there too",
        (above(Setting("max_weight_staleness"), 0), above(_STEPS, 1)),
        _STEPS,
        1,
        severity="warning",
    ),
    never(
        "F233",
        "The warm-up of the learning rate is given in steps and as a fraction of all.",
        "Megatron-LM, OptimizerParamScheduler's arguments in megatron/training/arguments.py",
        (given("lr_warmup_fraction"), above(Setting("lr_warmup_iters"), 0)),
        Setting("lr_warmup_iters"),
        0,
        severity="warning",
    ),
    never(
        "F234",
        "Engines have GPUs of their own, and how many is not said.",
        "slime/ray/placement_group.py, where it adds nothing to the actor's",
        (
            off("colocate"),
            absent("rollout_num_gpus", "rollout_external", "rollout_external_engine_addrs"),
            off("debug_train_only"),
            off("debug_rollout_only"),
        ),
        Setting("rollout_num_gpus"),
    ),
    *(
        never(
            code,
            f"{name} names a model of another size than hf_checkpoint.",
            "two paths of the script itself",
            (_other_size(name),),
            Setting(name),
            severity="warning",
        )
        for code, name in (("F235", "ref_load"), ("F236", "load"), ("F237", "save"))
    ),
    shared.visible("F232", "slime/ray/placement_group.py", Setting("actor_num_gpus_per_node")),
)
