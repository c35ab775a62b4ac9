"""What axolotl refuses of a configuration for GRPO before it loads a model."""

from __future__ import annotations

from rltui.check.frameworks.assertion import Framework, multiple, never
from rltui.check.frameworks.terms import Setting, absent, given, neither, off, on, one_of

FRAMEWORK = Framework("axolotl", "https://github.com/axolotl-ai-cloud/axolotl/tree/067b021c8")

_VALIDATION = "src/axolotl/utils/schemas/validation.py"
_GRPO = one_of("rl", "grpo")
_GROUP = Setting("trl.num_generations", default=8)
_GENERATED = Setting("trl.generation_batch_size")
_ROWS = Setting("micro_batch_size", default=1)
_PASSES = Setting("gradient_accumulation_steps", default=1)

TABLE = (
    multiple(
        "F962",
        "The rows of one process do not make whole groups, which versions of 2026 refuse.",
        f"{_VALIDATION}, check_grpo_batch_size_divisibility",
        (_ROWS * _PASSES, Setting("trl.num_generations")),
        when=(_GRPO, absent(*_GENERATED.names)),
        severity="warning",
    ),
    multiple(
        "F963",
        "The samples of a generation do not make whole groups.",
        f"{_VALIDATION}, check_grpo_batch_size_divisibility",
        (_GENERATED, _GROUP),
        when=(_GRPO,),
    ),
    never(
        "F964",
        "Samples are to be packed, which training from rewards does not do.",
        f"{_VALIDATION}, check_sample_packing_w_rl",
        (given("rl"), on("sample_packing")),
        Setting("sample_packing"),
        "false",
    ),
    never(
        "F965",
        "DeepSpeed and FSDP are both to divide the model.",
        f"{_VALIDATION}, check_fsdp_deepspeed",
        (given("deepspeed"), given("fsdp")),
        Setting("fsdp"),
    ),
    never(
        "F966",
        "Steps of warm-up are given, and a share of all steps.",
        f"{_VALIDATION}, check_warmup",
        (given("warmup_steps"), given("warmup_ratio"), neither(one_of("warmup_steps", "0"))),
        Setting("warmup_ratio"),
    ),
    never(
        "F967",
        "Checkpoints are counted in steps, and in epochs.",
        f"{_VALIDATION}, check_saves",
        (given("save_steps"), given("saves_per_epoch")),
        Setting("saves_per_epoch"),
    ),
    never(
        "F968",
        "Activations are to be moved off, and none are kept for recomputation.",
        f"{_VALIDATION}, check_activation_offloading_wo_gc",
        (on("activation_offloading"), off("gradient_checkpointing")),
        Setting("gradient_checkpointing"),
        "true",
    ),
)
