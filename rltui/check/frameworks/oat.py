"""What oat asserts when it reads its arguments and places its actors."""

from __future__ import annotations

from rltui.check.frameworks.assertion import Framework, choice, multiple, never
from rltui.check.frameworks.terms import Fact, Setting, absent, exactly, on

FRAMEWORK = Framework("oat", "https://github.com/sail-sg/oat/tree/c1a074c", "--{key} {value}")

_ARGUMENTS = "oat/args.py, default_args_validation"
_PROGRAM = "oat/interface.py, get_program"
_LEARNERS = Fact("trainer_gpus", "learners")
_SIZE = Setting("num_gpus_per_actor", default=1)

TABLE = (
    multiple(
        "F951",
        "The GPUs of the actors are no multiple of an actor's.",
        _PROGRAM,
        (Fact("rollout_gpus", "GPUs of actors") // Setting("num_groups", default=1), _SIZE),
    ),
    choice(
        "F952",
        "An actor has 1, 2, 4 or 8 GPUs.",
        _PROGRAM,
        Setting("num_gpus_per_actor"),
        ("1", "2", "4", "8"),
    ),
    never(
        "F953",
        "Actors that share the learners' GPUs are to run ahead of them.",
        _ARGUMENTS,
        (on("asynchronous"), on("collocate")),
        Setting("asynchronous"),
    ),
    never(
        "F954",
        "ZeRO-3 leaves no head to fuse, and since July 2025 it is fused unless --no-use_fused_lm_head says otherwise.",
        _ARGUMENTS,
        (exactly(Setting("zero_stage"), 3), absent("no_use_fused_lm_head", "use_fused_lm_head")),
        Setting("zero_stage"),
        2,
        severity="warning",
    ),
    multiple(
        "F955",
        "The prompts of a step do not divide over the learners.",
        "oat/learners/base.py, LearnerBase",
        (
            Setting("rollout_batch_size", default=128),
            _LEARNERS * Setting("rollout_batch_size_per_device", default=16),
        ),
        change=Setting("rollout_batch_size", default=128),
    ),
    multiple(
        "F956",
        "The samples of an optimizer step do not divide over the learners.",
        "DeepSpeed, _batch_assertion",
        (
            Setting("train_batch_size", default=128),
            _LEARNERS * Setting("train_batch_size_per_device", default=1),
        ),
        change=Setting("train_batch_size", default=128),
    ),
    never(
        "F957",
        "Both kinds of 16 bits are switched on: bf16 is unless --no-bf16 says otherwise.",
        _ARGUMENTS,
        (on("fp16"), absent("no_bf16", "bf16")),
        Setting("fp16"),
    ),
)
