"""What verl asserts of passes that nobody sizes, of engines and reward models with a pool of their own, of teachers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.check.frameworks.assertion import at_least, choice, multiple, never
from rltui.check.frameworks.terms import Constant, Setting, absent, either, fact, off, on, one_of, program

if TYPE_CHECKING:
    from rltui.check.frameworks.terms import Asked

_ACTOR, _ROLLOUT, _REF = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.ref"
_VALIDATE = "verl/utils/config.py, validate_config"
_SEPARATE = one_of("trainer.v1.trainer_mode", "separate_async")
_SEPARATES = "verl/trainer/ppo/v1/trainer_separate_async.py, PPOTrainerSeparateAsync"
_POOLS = "verl/trainer/ppo/v1/trainer_base.py, _init_resource_pool_mgr"
_DISTILS = "verl/workers/config/distillation.py"
_LOSS, _TEACHERS = "distillation.distillation_loss", "distillation.teacher_models."
_TEACHER = f"{_TEACHERS}teacher_model.inference"
_ON = on("distillation.enabled")
_KIND = Setting(f"{_LOSS}.loss_mode")
_ROWS = off(f"{_ACTOR}.use_dynamic_bsz")
_OWN_DEFAULTS = program("verl.trainer.main_ppo", "main_ppo.py")  # recipes start from configurations of their own
_COMPARES = either(on(f"{_ACTOR}.use_kl_loss"), on("algorithm.use_kl_in_reward"))
_OWN_NODES = Setting(f"{_ROLLOUT}.nnodes", default=0)
_REWARD = "reward.reward_model"


def _one_teacher(asked: Asked) -> bool:
    """Whether the teacher is alone; beside others verl drops the one of this name."""
    teachers = [name for name in asked.settings.values if name.startswith(_TEACHERS)]
    return bool(teachers) and all(name.startswith(f"{_TEACHERS}teacher_model.") for name in teachers)


TABLE = (
    never(
        "F138",
        "How many samples of a rank make a pass is not said; since February 2025 verl asks for it.",
        "verl/workers/config/actor.py, ActorConfig",
        (_OWN_DEFAULTS, _ROWS, absent(f"{_ACTOR}.ppo_micro_batch_size_per_gpu", f"{_ACTOR}.ppo_micro_batch_size")),
        Setting(f"{_ACTOR}.ppo_micro_batch_size_per_gpu"),
        1,
        severity="warning",
    ),
    *(
        never(
            code,
            f"How many rows make a pass for the {whose} log-probs is not said; since February 2025 verl asks for it.",
            _VALIDATE,
            (
                _OWN_DEFAULTS,
                _ROWS,
                *when,
                absent(f"{prefix}.log_prob_micro_batch_size_per_gpu", f"{prefix}.log_prob_micro_batch_size"),
            ),
            Setting(f"{prefix}.log_prob_micro_batch_size_per_gpu"),
            1,
            severity="warning",
        )
        for code, whose, prefix, when in (
            ("F139", "policy's", _ROLLOUT, ()),
            ("F140", "reference's", _REF, (_COMPARES,)),
        )
    ),
    never(
        "F150",
        "No engine is named; since August 2025 verl takes none by itself.",
        "verl/trainer/config/rollout/rollout.yaml",
        (_OWN_DEFAULTS, absent(f"{_ROLLOUT}.name"), absent(f"{_ACTOR}.ppo_micro_batch_size")),
        Setting(f"{_ROLLOUT}.name"),
        "vllm",
        severity="warning",
    ),
    at_least(
        "F141",
        "Engines are to have GPUs of their own, and no nodes.",
        _SEPARATES,
        (_OWN_NODES, Constant(1)),
        change=_OWN_NODES,
        when=(_SEPARATE,),
    ),
    never(
        "F142",
        "Engines have GPUs of their own, which weights do not reach in verl's naive way.",
        _SEPARATES,
        (_SEPARATE, one_of(f"{_ROLLOUT}.checkpoint_engine.backend", "naive", default="naive")),
        Setting(f"{_ROLLOUT}.checkpoint_engine.backend"),
        "nccl",
    ),
    never(
        "F143",
        "A reward model needs GPUs of its own where the engines never leave theirs.",
        _SEPARATES,
        (_SEPARATE, on(f"{_REWARD}.enable"), off(f"{_REWARD}.enable_resource_pool")),
        Setting(f"{_REWARD}.enable_resource_pool"),
        "True",
    ),
    at_least(
        "F144",
        "A reward model is to have GPUs of its own, and no nodes.",
        _POOLS,
        (Setting(f"{_REWARD}.nnodes", default=0), Constant(1)),
        change=Setting(f"{_REWARD}.nnodes"),
        when=(on(f"{_REWARD}.enable_resource_pool"),),
    ),
    at_least(
        "F145",
        "Teachers have no nodes.",
        _POOLS,
        (Setting("distillation.nnodes", default=0), Constant(1)),
        change=Setting("distillation.nnodes"),
        when=(_ON, absent("distillation.teacher_model.enable_resource_pool")),
    ),
    multiple(
        "F146",
        "The teacher's parallel sizes do not divide its GPUs.",
        f"{_DISTILS}, DistillationConfig",
        (
            Setting("distillation.n_gpus_per_node", default=8) * Setting("distillation.nnodes"),
            Setting(f"{_TEACHER}.tensor_model_parallel_size", default=2)
            * Setting(f"{_TEACHER}.data_parallel_size", default=1),
        ),
        change=Setting(f"{_TEACHER}.tensor_model_parallel_size"),
        when=(_ON, _one_teacher),
    ),
    choice(
        "F147",
        "verl distils by no such divergence.",
        f"{_DISTILS}, DistillationLossConfig",
        _KIND,
        ("k3", "forward_kl_topk", "k1", "kl", "abs", "mse", "k2", "low_var_kl"),
        (_ON,),
        severity="warning",
    ),
    never(
        "F148",
        "The k1 estimate is to be differentiated, whose gradient does not see the teacher.",
        f"{_DISTILS}, DistillationLossConfig",
        (_ON, one_of(_KIND.names[0], "k1"), off(f"{_LOSS}.use_policy_gradient")),
        Setting(f"{_LOSS}.use_policy_gradient"),
        "True",
    ),
    at_least(
        "F149",
        "The teacher's length is below prompt, response and one token.",
        f"{_DISTILS}, DistillationTeacherModelConfig",
        (
            Setting(f"{_TEACHER}.max_model_len"),
            Setting("data.max_prompt_length", default=512)
            + Setting("data.max_response_length", default=512)
            + Constant(1),
        ),
        change=Setting(f"{_TEACHER}.max_model_len"),
        when=(_ON,),
    ),
    *(
        never(
            code,
            f"Weights of the {whose} are to come from a distributed checkpoint, and none is named.",
            "verl/workers/engine/megatron/transformer_impl.py",
            (
                _OWN_DEFAULTS,
                *when,
                on(f"{prefix}.megatron.use_dist_checkpointing"),
                absent(f"{prefix}.megatron.dist_checkpointing_path"),
            ),
            Setting(f"{prefix}.megatron.use_dist_checkpointing"),
            "False",
        )
        for code, whose, prefix, when in (
            ("F162", "actor", _ACTOR, ()),
            ("F163", "reference", _REF, (_COMPARES,)),
            ("F164", "critic", "critic", (fact("algorithm", "ppo"),)),
        )
    ),
)
"""Rows of verl's table."""
