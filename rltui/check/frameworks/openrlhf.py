"""What OpenRLHF's ``train_ppo_ray`` asserts before its first step, by underscored and by dotted names."""

from __future__ import annotations

from rltui.check.frameworks import shared
from rltui.check.frameworks.assertion import Framework, at_least, choice, equal, multiple, never
from rltui.check.frameworks.terms import (
    Constant,
    Fact,
    Setting,
    above,
    absent,
    either,
    fact,
    given,
    off,
    on,
    one_of,
)

FRAMEWORK = Framework("openrlhf", "https://github.com/OpenRLHF/OpenRLHF/tree/3c3be623", "--{key}={value}")

_MAIN = "openrlhf/cli/train_ppo_ray.py"
_STRATEGY = "DeepSpeed's batch check, with openrlhf/utils/deepspeed/deepspeed.py"

_GPUS = Fact("trainer_gpus", "GPUs of the actor")
_PROMPTS = Setting("rollout_batch_size", "rollout.batch_size", default=1024)
_SAMPLES = Setting("n_samples_per_prompt", "rollout.n_samples_per_prompt", default=1)
_ROLLOUT_MICRO = Setting("micro_rollout_batch_size", "rollout.micro_batch_size")
_BATCH = Setting("train_batch_size", "train.batch_size", default=128)
_MICRO = Setting("micro_train_batch_size", "train.micro_batch_size")
_RING = Setting("ring_attn_size", "ds.ring_attn_size", default=1)
_TENSOR = Setting("ds_tensor_parallel_size", "ds.tensor_parallel_size", default=1)
_ENGINES = Setting("vllm_num_engines", "vllm.num_engines")
_ENGINE_GPUS = Setting("vllm_tensor_parallel_size", "vllm.tensor_parallel_size", default=1)
_GENERATED = Setting("vllm_generate_batch_size", "rollout.vllm_generate_batch_size")
_ACTOR_GPUS = Setting("actor_num_gpus_per_node", "actor.num_gpus_per_node")
_REFERENCE_GPUS = Setting("ref_num_gpus_per_node", "ref.num_gpus_per_node")
_REFERENCE = Setting("ref_num_nodes", "ref.num_nodes", default=1) * _REFERENCE_GPUS
_ESTIMATOR = Setting("advantage_estimator", "algo.advantage.estimator")
_IMAGES = Setting("max_images_per_prompt", "data.max_images_per_prompt")
_RANKS = _GPUS // (_RING * _TENSOR)

_RL = either(fact("algorithm", "grpo"), fact("algorithm", "ppo"))
_SYNC = off("async_train", "train.async_enable")
_ALL = on("colocate_all_models", "train.colocate_all")
_ROWS = off("use_dynamic_batch", "train.dynamic_batch_enable")
_GROUPED = ("rloo", "reinforce_baseline", "group_norm", "dr_grpo")
_NO_REWARD = absent(
    "remote_rm_url", "reward.remote_url", "agent_func_path", "train.agent_func_path", "train.agent_path"
)

TABLE = (
    at_least(
        "F401",
        "There are fewer batches of samples than ranks of the actor.",
        f"{_MAIN}, at its end",
        (_PROMPTS * _SAMPLES // _ROLLOUT_MICRO, _RANKS),
        when=(_RL,),
    ),
    multiple(
        "F402",
        "The training batch does not divide over the actor's ranks and their micro-batches.",
        _STRATEGY,
        (_BATCH, _MICRO * _RANKS),
        when=(_ROWS,),
    ),
    equal(
        "F403",
        "All models share their GPUs, but engines and actor have different numbers of them.",
        f"{_MAIN}, train",
        (_ENGINES * _ENGINE_GPUS, _GPUS),
        when=(_RL, _ALL, _SYNC, above(_ENGINES, 0)),
    ),
    at_least(
        "F404",
        "The estimator compares the samples of a prompt with each other, and there is one.",
        _MAIN,
        (_SAMPLES, Constant(2)),
        when=(_RL, either(one_of("advantage_estimator", *_GROUPED), one_of("algo.advantage.estimator", *_GROUPED))),
    ),
    never(
        "F405",
        "Engines are to sleep while the training goes on beside them.",
        _MAIN,
        (_RL, on("async_train", "train.async_enable"), on("vllm_enable_sleep", "vllm.enable_sleep"), _ALL),
        Setting("vllm_enable_sleep", "vllm.enable_sleep"),
    ),
    never(
        "F406",
        "Partial rollouts need asynchronous training.",
        _MAIN,
        (_RL, on("partial_rollout", "train.partial_rollout_enable"), absent("async_train", "train.async_enable")),
        Setting("async_train", "train.async_enable"),
        "",
    ),
    never(
        "F407",
        "Groups are to be filtered by a reward that nothing outside the trainer gives.",
        _MAIN,
        (_RL, on("dynamic_filtering", "algo.dynamic_filtering_enable"), _NO_REWARD),
        Setting("remote_rm_url", "reward.remote_url"),
    ),
    at_least(
        "F408",
        "Groups of one sample cannot be filtered by their rewards.",
        _MAIN,
        (_SAMPLES, Constant(2)),
        when=(_RL, on("dynamic_filtering", "algo.dynamic_filtering_enable")),
    ),
    at_least(
        "F409",
        "More prompts are generated than a rollout takes, which only asynchronous training can keep.",
        _MAIN,
        (_PROMPTS, _GENERATED),
        when=(_RL, _SYNC, off("dynamic_filtering", "algo.dynamic_filtering_enable")),
    ),
    never(
        "F410",
        "Packed samples need engines.",
        _MAIN,
        (_RL, on("packing_samples", "ds.packing_samples"), absent("vllm_num_engines", "vllm.num_engines")),
        _ENGINES,
    ),
    multiple(
        "F411",
        "Ring attention and tensor parallelism do not divide the actor's GPUs.",
        _STRATEGY,
        (_GPUS, _RING * _TENSOR),
        change=_RING,
        when=(_RL,),
    ),
    equal(
        "F412",
        "Actor and reference share their GPUs, and are of different sizes.",
        f"{_MAIN}, train",
        (_REFERENCE, _GPUS),
        change=_REFERENCE_GPUS,
        when=(
            _RL,
            either(_ALL, on("colocate_actor_ref", "train.colocate_actor_ref")),
            above(Setting("init_kl_coef", "algo.kl.init_coef", default=0.01), 0),
        ),
    ),
    choice(
        "F413",
        "OpenRLHF knows no such estimator.",
        _MAIN,
        _ESTIMATOR,
        ("gae", "reinforce", "rloo", "reinforce_baseline", "group_norm", "dr_grpo"),
        (_RL,),
        severity="warning",
    ),
    choice(
        "F414",
        "OpenRLHF estimates KL in no such way.",
        _MAIN,
        Setting("kl_estimator", "algo.kl.estimator"),
        ("k1", "k2", "k3"),
        (_RL,),
    ),
    never(
        "F415",
        "An evaluation needs rewards from outside the trainer.",
        _MAIN,
        (_RL, given("eval_dataset", "eval.dataset"), _NO_REWARD),
        Setting("remote_rm_url", "reward.remote_url"),
    ),
    never(
        "F417",
        "A training on images has no critic.",
        _MAIN,
        (fact("algorithm", "ppo"), above(_IMAGES, 0)),
        _ESTIMATOR,
        "group_norm",
    ),
    never(
        "F418",
        "A training on images packs no samples.",
        _MAIN,
        (_RL, above(_IMAGES, 0), on("packing_samples", "ds.packing_samples")),
        Setting("ds.packing_samples", "packing_samples"),
    ),
    never(
        "F419",
        "Nothing gives a reward: no reward model, no address of one, no agent.",
        _MAIN,
        (_RL, _NO_REWARD, absent("reward_pretrain", "reward.model_name_or_path")),
        Setting("remote_rm_url", "reward.remote_url"),
        severity="warning",
    ),
    shared.visible("F416", "openrlhf/trainer/ray/launcher.py, PPORayActorGroup", _ACTOR_GPUS, (_RL,)),
)
