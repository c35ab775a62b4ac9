"""What TRL's GRPOConfig and GRPOTrainer assert before the first step."""

from __future__ import annotations

from rltui.check.frameworks.assertion import Framework, at_least, choice, multiple, never
from rltui.check.frameworks.terms import (
    Constant,
    Fact,
    Setting,
    absent,
    below,
    either,
    exactly,
    fact,
    given,
    neither,
    not_below,
    off,
    on,
    one_of,
    program,
)

FRAMEWORK = Framework("trl", "https://github.com/huggingface/trl/tree/f2cd57710", "--{key}={value}")

_CONFIG = "trl/trainer/grpo_config.py, GRPOConfig.__post_init__"
_VLLM = "trl/generation/vllm_generation.py, VLLMGeneration._init_vllm"

_GRPO = fact("algorithm", "grpo")
_PROCESSES = Fact("trainer_gpus", "training processes")
_ROWS = Setting("per_device_train_batch_size")
_ACCUMULATED = Setting("gradient_accumulation_steps", default=1)
_ROUNDS = Setting("steps_per_generation")
_GENERATED = Setting("generation_batch_size")
_GROUP = Setting("num_generations")
_TENSOR = Setting("vllm_tensor_parallel_size", default=1)
_EVALUATED = Setting("per_device_eval_batch_size", default=8)
_TRAINER = "trl/trainer/grpo_trainer.py, GRPOTrainer.__init__"
_LIGER = on("use_liger_kernel")
_LOWEST, _HIGHEST = (
    Setting("vllm_importance_sampling_clip_min"),
    Setting("vllm_importance_sampling_clip_max", "vllm_importance_sampling_cap"),
)
_LENGTH = Setting("vllm_max_model_length", "vllm_max_model_len")

_TRLS_OWN = either(
    program("trl", "trl/scripts/", "examples/scripts/"),
    given(
        "vllm_mode", "steps_per_generation", "generation_batch_size", "loss_type", "mask_truncated_completions",
        "importance_sampling_level", "top_entropy_quantile", "vllm_importance_sampling_correction",
    ),
)  # fmt: skip
"""Whether TRL's own ``GRPOConfig`` of 0.17 or later reads the settings, by its program or by settings it alone has.

Before, and in trainers that were copied from it then (R1-V, Video-R1), every process samples whole groups by itself.
"""


_NO_OTHER = fact("dialect", "trl")  # systems made from TRL know further words

TABLE = (
    multiple(
        "F301",
        "The samples of a generation do not make whole groups.",
        _CONFIG,
        (_ROWS * _PROCESSES * _ACCUMULATED, _GROUP),
        when=(_GRPO, _TRLS_OWN, absent("steps_per_generation"), absent("generation_batch_size")),
    ),
    multiple(
        "F311",
        "The samples of a generation do not make whole groups, which TRL's own trainer refuses; this may be another.",
        _CONFIG,
        (_ROWS * _PROCESSES * _ACCUMULATED, _GROUP),
        when=(_GRPO, neither(_TRLS_OWN), absent("steps_per_generation"), absent("generation_batch_size")),
        severity="warning",
    ),
    multiple(
        "F302",
        "The samples of a generation do not make whole groups.",
        _CONFIG,
        (_ROWS * _PROCESSES * _ROUNDS, _GROUP),
        when=(_GRPO, absent("generation_batch_size")),
    ),
    multiple(
        "F303",
        "The samples of a generation do not make whole groups.",
        _CONFIG,
        (_GENERATED, _GROUP),
        when=(_GRPO, absent("steps_per_generation")),
    ),
    multiple(
        "F304",
        "The generation batch is no multiple of the rows of all processes.",
        _CONFIG,
        (_GENERATED, _ROWS * _PROCESSES),
        when=(_GRPO, absent("steps_per_generation")),
    ),
    never(
        "F305",
        "Samples of a generation are set twice, as a batch and as steps.",
        _CONFIG,
        (_GRPO, given("generation_batch_size"), given("steps_per_generation")),
        _ROUNDS,
    ),
    at_least(
        "F306",
        "A group of one sample has no advantage.",
        _CONFIG,
        (_GROUP, Constant(2)),
        when=(_GRPO, _TRLS_OWN),
    ),
    at_least(
        "F312",
        "A group of one sample has no advantage, and TRL's own trainer refuses it; this may be another.",
        _CONFIG,
        (_GROUP, Constant(2)),
        when=(_GRPO, neither(_TRLS_OWN)),
        severity="warning",
    ),
    multiple(
        "F307",
        "vLLM's tensor parallelism does not divide the training processes that it shares GPUs with.",
        _VLLM,
        (_PROCESSES, _TENSOR),
        when=(_GRPO, on("use_vllm"), one_of("vllm_mode", "colocate")),
    ),
    multiple(
        "F308",
        "The rows of an evaluation do not make whole groups.",
        _CONFIG,
        (_EVALUATED * _PROCESSES, Setting("num_generations_eval", "num_generations")),
        change=_EVALUATED,
        when=(_GRPO, one_of("eval_strategy", "steps", "epoch")),
    ),
    never(
        "F309",
        "The batch is to be found by trying, which breaks groups.",
        _CONFIG,
        (_GRPO, on("auto_find_batch_size")),
        Setting("auto_find_batch_size"),
        "False",
    ),
    at_least(
        "F310",
        "The engine's length is below prompt and response together.",
        "vLLM's own limit",
        (_LENGTH, Setting("max_prompt_length") + Setting("max_completion_length")),
        when=(_GRPO, on("use_vllm"), off("use_transformers_paged")),
        severity="warning",
    ),
    choice(
        "F313",
        "TRL knows no such loss.",
        "trl/trainer/grpo_trainer.py, _compute_loss",
        Setting("loss_type"),
        ("dapo", "grpo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
        (_GRPO, _NO_OTHER),
        severity="warning",
    ),
    choice(
        "F314",
        "vLLM is either a server or shares the trainer's GPUs.",
        _VLLM,
        Setting("vllm_mode"),
        ("server", "colocate"),
        (_GRPO, on("use_vllm")),
    ),
    choice(
        "F315",
        "TRL weights no such part of a sample.",
        "trl/trainer/grpo_trainer.py, _compute_loss",
        Setting("importance_sampling_level"),
        ("token", "sequence"),
        (_GRPO, _NO_OTHER),
        severity="warning",
    ),
    never(
        "F316",
        "The reference is to follow the policy, and there is none without a KL penalty.",
        "trl/trainer/grpo_trainer.py, GRPOTrainer.__init__",
        (_GRPO, on("sync_ref_model"), exactly(Setting("beta"), 0)),
        Setting("sync_ref_model"),
        "False",
    ),
    multiple(
        "F317",
        "TRL before 0.16, which alone has vllm_device, makes whole groups of the rows of one pass.",
        "trl/trainer/grpo_trainer.py, GRPOTrainer.__init__ of 0.15",
        (_ROWS * _PROCESSES, Setting("num_generations", default=8)),
        change=_GROUP,
        when=(_GRPO, given("vllm_device")),
        severity="warning",
    ),
    never(
        "F318",
        "The bounds of importance weights are the wrong way round.",
        _CONFIG,
        (_GRPO, not_below(_LOWEST, _HIGHEST)),
        _LOWEST,
        0.0,
    ),
    never(
        "F319",
        "Completions are to be uploaded, and are not to be logged.",
        _CONFIG,
        (_GRPO, given("log_completions_hub_repo"), off("log_completions")),
        Setting("log_completions"),
        "True",
    ),
    never(
        "F320",
        "Liger's loss masks no tokens by their entropy.",
        _TRAINER,
        (_GRPO, _LIGER, below(Setting("top_entropy_quantile"), 1)),
        Setting("use_liger_kernel"),
        "False",
    ),
    never(
        "F321",
        "Liger's loss masks no sequences that are off-policy.",
        _TRAINER,
        (_GRPO, _LIGER, given("off_policy_mask_threshold")),
        Setting("use_liger_kernel"),
        "False",
    ),
    never(
        "F322",
        "VESPO weights tokens, and importance is to be corrected by sequences.",
        _TRAINER,
        (
            _GRPO,
            one_of("loss_type", "vespo"),
            on("use_vllm"),
            on("vllm_importance_sampling_correction", default=True),
            one_of("vllm_importance_sampling_mode", "sequence_truncate", "sequence_mask", default="sequence_mask"),
        ),
        Setting("vllm_importance_sampling_mode"),
        "token_truncate",
    ),
    never(
        "F323",
        "The reference is to follow the policy, and with adapters there is no model of its own; refused since 2026.",
        _TRAINER,
        (_GRPO, on("sync_ref_model"), on("use_peft")),
        Setting("sync_ref_model"),
        "False",
        severity="warning",
    ),
)
