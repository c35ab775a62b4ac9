"""What open-instruct's ``grpo_fast.py`` asserts before its first step."""

from __future__ import annotations

from rltui.check.frameworks.assertion import Framework, at_least, multiple, never
from rltui.check.frameworks.terms import Constant, Fact, Setting, above, exactly, fact, given, off, on, one_of

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

TABLE = (
    at_least(
        "F801",
        "A packed row is shorter than a prompt with its response.",
        f"{_LOADER}.__post_init__",
        (_PACK, _PROMPT + _RESPONSE),
        _PACK,
        (_RL, _FAST),
    ),
    at_least(
        "F802",
        "A step has fewer samples than there are learners.",
        "open_instruct/grpo_fast.py, validate_configs",
        (_PROMPTS * _SAMPLES, _GPUS // _PARALLEL),
        _PROMPTS,
        (_RL, _FAST),
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
        _ASYNC,
        (_RL, _FAST),
    ),
    at_least(
        "F806",
        "Active sampling needs rollouts that run ahead.",
        f"{_LOADER}.__post_init__",
        (_ASYNC, Constant(2)),
        _ASYNC,
        (_RL, on("active_sampling")),
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
        _PARALLEL,
        (_RL,),
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
        Setting("fsdp_shard_degree"),
        (_RL,),
    ),
)
