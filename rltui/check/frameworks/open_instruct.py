"""What open-instruct's ``grpo_fast.py`` asserts before its first step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.check.frameworks.assertion import Framework, at_least, choice, equal, multiple, never
from rltui.check.frameworks.terms import (
    Constant,
    Fact,
    Setting,
    above,
    absent,
    at_most,
    either,
    exactly,
    fact,
    given,
    off,
    on,
    one_of,
)
from rltui.importers.values import is_known

if TYPE_CHECKING:
    from rltui.check.frameworks.terms import Asked, Condition

FRAMEWORK = Framework("open-instruct", "https://github.com/allenai/open-instruct/tree/e6c3044aa", "--{key}={value}")

_LOADER = "open_instruct/data_loader.py, StreamingDataLoaderConfig"
_ARGUMENTS = "open_instruct/grpo_utils.py, GRPOExperimentConfig"

_GPUS = Fact("trainer_gpus", "learners")
_PROMPTS, _SAMPLES = Setting("num_unique_prompts_rollout"), Setting("num_samples_per_prompt_rollout")
_PACK = Setting("pack_length", default=512)
_PROMPT = Setting("max_prompt_token_length", default=256)
_RESPONSE = Setting("response_length", default=256)
_PARALLEL = Setting("sequence_parallel_size", default=1)
_ASYNC = Setting("async_steps")
_RL = fact("algorithm", "grpo")
_FAST = given("num_learners_per_node")  # its elders count their learners under another name and assert less
_SHARD, _COPIES = Setting("fsdp_shard_degree"), Setting("fsdp_num_replicas")
_STATES, _EVALUATION = Setting("checkpoint_state_freq"), Setting("local_eval_every")
_RHO = on("use_rho_correction", default=True)


def _unpaired(mixer: str) -> Condition:
    """The splits of a mixture are neither one nor one for each data set; elder versions count its amounts as well."""

    def is_unpaired(asked: Asked) -> bool:
        mixed, splits = (list(asked.settings.words(name)) for name in (mixer, f"{mixer}_splits"))
        known = all(is_known(word) for word in (*mixed, *splits))
        return bool(mixed and splits and known) and len(splits) not in (1, len(mixed) // 2, len(mixed))

    return is_unpaired


TABLE = (
    at_least(
        "F801",
        "A packed row is shorter than a prompt with its response.",
        f"{_LOADER}.__post_init__",
        (_PACK, _PROMPT + _RESPONSE),
        when=(_RL, _FAST),
    ),
    at_least(
        "F802",
        "A step has fewer samples than there are learners.",
        "open_instruct/grpo_fast.py, validate_configs",
        (_PROMPTS * _SAMPLES, _GPUS // _PARALLEL),
        when=(_RL, _FAST),
    ),
    never(
        "F803",
        "Sequence parallelism needs ZeRO stage 3.",
        f"{_ARGUMENTS}.__post_init__",
        (_RL, above(_PARALLEL, 1), one_of("deepspeed_stage", "0", "1", "2", default="0")),
        Setting("deepspeed_stage"),
        3,
    ),
    never(
        "F804",
        "A KL penalty compares with a reference that is not loaded.",
        f"{_ARGUMENTS}.__post_init__",
        (_RL, off("load_ref_policy", default=True), above(Setting("beta", default=0.05), 0)),
        Setting("beta"),
        0.0,
    ),
    at_least(
        "F805",
        "Training without any step ahead is not supported.",
        f"{_LOADER}.__post_init__",
        (_ASYNC, Constant(1)),
        when=(_RL, _FAST),
    ),
    at_least(
        "F806",
        "Active sampling needs rollouts that run ahead.",
        f"{_LOADER}.__post_init__",
        (_ASYNC, Constant(2)),
        when=(_RL, on("active_sampling")),
    ),
    never(
        "F807",
        "Active sampling needs groups without a signal to be left out.",
        f"{_LOADER}.__post_init__",
        (_RL, on("active_sampling"), off("filter_zero_std_samples", default=True)),
        Setting("filter_zero_std_samples"),
        "True",
    ),
    never(
        "F808",
        "Groups of one sample have no deviation, so all of them are filtered out.",
        f"{_LOADER}.__post_init__",
        (_RL, _FAST, exactly(_SAMPLES, 1), on("filter_zero_std_samples", default=None)),
        _SAMPLES,
        2,
    ),
    multiple(
        "F809",
        "Sequence parallelism does not divide the learners.",
        "open_instruct/grpo_fast.py, PolicyTrainerRayProcess",
        (_GPUS, _PARALLEL),
        when=(_RL,),
    ),
    never(
        "F810",
        "Old log-probs are to come from the engine, and to be corrected against it.",
        f"{_ARGUMENTS}.__post_init__",
        (_RL, on("use_vllm_logprobs"), on("use_rho_correction")),
        Setting("use_vllm_logprobs"),
        "False",
    ),
    multiple(
        "F811",
        "The learners are no multiple of a shard of FSDP.",
        f"{_ARGUMENTS}.__post_init__",
        (_GPUS, Setting("fsdp_shard_degree")),
        when=(_RL,),
    ),
    equal(
        "F812",
        "Shards and copies of FSDP are not all learners.",
        f"{_ARGUMENTS}.__post_init__",
        (_SHARD * _COPIES, _GPUS),
        change=_COPIES,
        when=(_RL,),
    ),
    multiple(
        "F813",
        "The learners are no multiple of FSDP's copies.",
        f"{_ARGUMENTS}.__post_init__",
        (_GPUS, _COPIES),
        when=(_RL,),
    ),
    never(
        "F814",
        "The loss is to be divided by nothing.",
        f"{_ARGUMENTS}.__post_init__",
        (_RL, at_most(Setting("loss_denominator"), 0)),
        Setting("loss_denominator"),
        "token",
    ),
    at_least(
        "F815",
        "States are to be saved, and never come to be.",
        f"{_ARGUMENTS}.__post_init__",
        (_STATES, Constant(1)),
        when=(_RL, given("checkpoint_state_dir")),
    ),
    at_least(
        "F816",
        "An evaluation is wanted before the first step, and none is to be made.",
        f"{_ARGUMENTS}.__post_init__",
        (_EVALUATION, Constant(1)),
        when=(_RL, on("eval_on_step_0")),
    ),
    never(
        "F817",
        "States are to go to a bucket, and are not to be saved.",
        f"{_ARGUMENTS}.__post_init__",
        (_RL, given("gs_bucket_path"), absent("checkpoint_state_dir"), absent("gs_checkpoint_state_dir")),
        Setting("checkpoint_state_dir"),
    ),
    never(
        "F818",
        "The lower bound of the weights is not below 1.",
        f"{_ARGUMENTS}.__post_init__",
        (_RL, _RHO, above(Setting("rho_mask_lower_bound"), 0.999999)),
        Setting("rho_mask_lower_bound"),
        0.5,
    ),
    never(
        "F819",
        "The lower bound of the weights is not below 1.",
        f"{_ARGUMENTS}.__post_init__",
        (_RL, _RHO, above(Setting("rho_clamp_lower_bound"), 0.999999)),
        Setting("rho_clamp_lower_bound"),
        0.5,
    ),
    never(
        "F820",
        "The upper bound of the weights is not above 1.",
        f"{_ARGUMENTS}.__post_init__",
        (_RL, _RHO, above(Setting("rho_mask_upper_bound"), 0), at_most(Setting("rho_mask_upper_bound"), 1)),
        Setting("rho_mask_upper_bound"),
        2.0,
    ),
    never(
        "F821",
        "The upper bound of the weights is not above 1.",
        f"{_ARGUMENTS}.__post_init__",
        (_RL, _RHO, above(Setting("rho_clamp_upper_bound"), 0), at_most(Setting("rho_clamp_upper_bound"), 1)),
        Setting("rho_clamp_upper_bound"),
        2.0,
    ),
    never(
        "F822",
        "An evaluation's top_p is above 1.",
        f"{_ARGUMENTS}.__post_init__",
        (_RL, above(Setting("eval_top_p"), 1)),
        Setting("eval_top_p"),
        1.0,
    ),
    never(
        "F823",
        "An evaluation's top_p leaves no token.",
        f"{_ARGUMENTS}.__post_init__",
        (_RL, at_most(Setting("eval_top_p"), 0)),
        Setting("eval_top_p"),
        1.0,
    ),
    at_least(
        "F824",
        "An evaluation has no sample.",
        "open_instruct/grpo_fast.py, setup_runtime_variables",
        (Setting("eval_pass_at_k"), Constant(1)),
        when=(_RL,),
    ),
    never(
        "F825",
        "On a single GPU an engine is one GPU.",
        "open_instruct/vllm_utils.py, create_vllm_engines",
        (_RL, on("single_gpu_mode"), above(Setting("vllm_tensor_parallel_size"), 1)),
        Setting("vllm_tensor_parallel_size"),
        1,
    ),
    never(
        "F826",
        "No reward is applied.",
        f"{_LOADER}.__post_init__",
        (
            _RL,
            _FAST,
            off("apply_verifiable_reward", default=True),
            off("apply_r1_style_format_reward"),
            off("non_stop_penalty"),
            off("apply_evolving_rubric_reward"),
        ),
        Setting("apply_verifiable_reward"),
        "True",
    ),
    at_least("F827", "A prompt has no sample.", f"{_LOADER}.__post_init__", (_SAMPLES, Constant(1)), when=(_RL,)),
    never(
        "F828",
        "What tools answer is to be trained on, beside the engine's log-probs.",
        "open_instruct/grpo_fast.py, setup_runtime_variables",
        (
            _RL,
            given("tools"),
            off("mask_tool_use", default=True),
            either(on("use_vllm_logprobs"), on("use_rho_correction")),
        ),
        Setting("mask_tool_use"),
        "True",
    ),
    choice(
        "F829",
        "open-instruct scales advantages in no such way.",
        "open_instruct/data_loader.py, DataPreparationActor",
        Setting("advantage_normalization_type"),
        ("standard", "centered"),
        (_RL, _FAST),
        severity="warning",
    ),
    choice(
        "F830",
        "open-instruct knows no such estimator of KL.",
        _ARGUMENTS,
        Setting("kl_estimator"),
        ("0", "1", "2", "3"),
        (_RL, _FAST),
        severity="warning",
    ),
    choice(
        "F831", "DeepSpeed has no such stage.", _ARGUMENTS, Setting("deepspeed_stage"), ("0", "1", "2", "3"), (_RL,)
    ),
    *(
        never(
            code,
            f"The mixture for {what} has neither one split nor one for each data set.",
            "open_instruct/dataset_transformation.py, get_cached_dataset_tulu_with_statistics",
            (_unpaired(mixer),),
            Setting(f"{mixer}_splits"),
            "train",
        )
        for code, what, mixer in (
            ("F832", "training", "dataset_mixer_list"),
            ("F833", "evaluation", "dataset_mixer_eval_list"),
        )
    ),
)
