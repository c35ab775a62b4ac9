"""SkyRL: Hydra-like overrides of ``main_base`` and the entry points of its examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rltui.importers.arguments import Settings, from_overrides
from rltui.importers.facts import (
    IN_TURNS,
    MEGATRON,
    ON_HOST,
    Facts,
    Teacher,
    first_of,
    mapped,
    megatron_cuts,
    on_megatron,
    only_training,
    remarks,
    steps_on_host,
    uncounted,
)
from rltui.importers.values import product, quotient
from rltui.importers.variants import Variants

if TYPE_CHECKING:
    from rltui.importers.script import Script

NAME = "skyrl"
_PLACEMENT = "trainer.placement"
_ENGINE = "generator.inference_engine"
_TENSOR = (f"{_ENGINE}.tensor_parallel_size", "generator.inference_engine_tensor_parallel_size")
_TABLE: Mapping[str, str] = {
    "trainer.train_batch_size": "train.prompts_per_step",
    "generator.n_samples_per_prompt": "train.samples_per_prompt",
    "trainer.policy.optimizer_config.lr": "train.learning_rate",
    "trainer.policy.optimizer_config.num_warmup_steps": "train.warmup_steps",
    "trainer.policy.optimizer_config.weight_decay": "train.weight_decay",
    "trainer.policy.optimizer_config.max_grad_norm": "train.gradient_clip",
    "trainer.update_epochs_per_batch": "train.epochs",
    "generator.sampling_params.temperature": "train.temperature",
    "generator.sampling_params.top_p": "train.top_p",
    "trainer.max_prompt_length": "lengths.prompt",
    "generator.sampling_params.max_generate_length": "lengths.response",
    "trainer.policy.sequence_parallel_size": "roles.learner.sequence_parallel",
    **megatron_cuts("trainer.policy.megatron_config."),
    "trainer.gradient_checkpointing": "roles.learner.gradient_checkpointing",
    "trainer.policy.model.lora.rank": "roles.learner.lora_rank",
    "trainer.micro_train_batch_size_per_gpu": "roles.learner.micro_batch",
    f"{_ENGINE}.gpu_memory_utilization": "roles.rollout.memory_utilization",
    "generator.gpu_memory_utilization": "roles.rollout.memory_utilization",
    f"{_ENGINE}.enforce_eager": "roles.rollout.enforce_eager",
    "trainer.algorithm.eps_clip_low": "grpo.clip_low",
    "trainer.algorithm.eps_clip_high": "grpo.clip_high",
    "trainer.algorithm.kl_loss_coef": "grpo.kl_coefficient",
    "trainer.ckpt_interval": "checkpoint.every",
    "trainer.eval_interval": "data.eval_every",
    "trainer.project_name": "tracking.project",
    "trainer.critic.optimizer_config.lr": "roles.critic.learning_rate",
    "trainer.fully_async.max_staleness_steps": "train.async_steps",
}

_RATIOS = {"gspo": "sequence", **{name: name for name in ("cispo", "sapo", "clip_cov", "kl_cov")}}
"""Surrogates by ``policy_loss_type``, those but PPO's."""

_DEFAULTS: Mapping[str, Any] = {
    "train.prompts_per_step": 1024,
    "train.samples_per_prompt": 5,
    "lengths.prompt": 512,
    "lengths.response": 1024,
    "roles.learner.gradient_checkpointing": True,
    "roles.learner.zero_stage": 3,
    "roles.rollout.memory_utilization": 0.8,
    "grpo.kl_coefficient": 0.001,
}
"""What SkyRL takes where a command is silent (``skyrl.train.config``)."""


def from_script(script: Script) -> list[Facts]:
    """What each training that the script starts needs; known by its placement settings."""
    found = []
    for command in script.commands:
        source = from_overrides(command.words)
        generator = any(name.startswith("generator.") for name in source.values)
        placement = any(name.startswith(f"{_PLACEMENT}.") for name in source.values)
        if placement or (generator and any(name.startswith("trainer.") for name in source.values)):
            found.append(_facts(script, source))
        elif any(word.startswith("skyrl.") and "sft" in word for word in command.words):
            found.append(_supervised(source))
    return found


def _facts(script: Script, source: Settings) -> Facts:
    nodes = source.integer(f"{_PLACEMENT}.policy_num_nodes", default=1)
    per_node = source.integer(f"{_PLACEMENT}.policy_num_gpus_per_node")
    trainer = product(nodes, per_node)
    colocated = source.flag(f"{_PLACEMENT}.colocate_all", default=True)
    size = source.integer(*_TENSOR, key="roles.rollout.tensor_parallel")
    engines = source.integer(f"{_ENGINE}.num_engines", "generator.num_inference_engines", default=1)
    if source.flag(f"{_ENGINE}.run_engines_locally", "generator.run_engines_locally", default=True) is not True:
        engines = None  # somebody else's servers, on machines that the command does not count
    rollout = _rollout(source, engines, size, trainer if colocated else None)
    has_critic = bool(source.text("trainer.critic.model.path"))
    own_critic = has_critic and not colocated and source.flag(f"{_PLACEMENT}.colocate_policy_critic") is False
    in_loss = source.flag("trainer.algorithm.use_kl_loss", default=True)
    asks = bool(in_loss or source.flag("trainer.algorithm.use_kl_in_reward"))
    holds_reference = asks and _teacher(source) is None
    apart = not colocated and source.flag(f"{_PLACEMENT}.colocate_policy_ref", default=True) is False
    own_reference = apart and (asks or in_loss is None)
    facts = Facts(
        dialect=NAME,
        algorithm=_algorithm(source, has_critic),
        model=source.text("trainer.policy.model.path", key="roles.learner.model"),
        colocated=colocated,
        trainer_gpus=trainer,
        rollout_gpus=rollout,
        rollout_tp=size,
        rollout_engines=engines,
        critic="own" if own_critic else "shared" if has_critic else "none",
        critic_gpus=_group(source, "critic") if own_critic else 0,
        reference=holds_reference,
        reference_gpus=_group(source, "ref") if own_reference else 0,
        teacher=_teacher(source),
        other_gpus=uncounted(source, ("trainer.", "generator.")),
        source=source,
        settings=_settings(source),
        unsure=_unsure(source, colocated),
        notes=(*_notes(source), *remarks(source)),
    )
    return _with_machine(script, facts, (nodes, per_node))


def _group(source: Settings, role: str) -> int | None:
    return product(
        source.integer(f"{_PLACEMENT}.{role}_num_nodes", default=1),
        source.integer(f"{_PLACEMENT}.{role}_num_gpus_per_node"),
    )


def _rollout(source: Settings, engines: int | None, size: int | None, shared: int | None) -> int | None:
    """GPUs of all engines; where they share with the trainer, SkyRL insists that both are the same."""
    if engines is None:
        return None
    data = source.integer(f"{_ENGINE}.data_parallel_size", "generator.inference_engine_data_parallel_size", default=1)
    pipeline = source.integer(
        f"{_ENGINE}.pipeline_parallel_size", "generator.inference_engine_pipeline_parallel_size", default=1
    )
    asked = product(engines, size, data, pipeline)
    return shared if asked is None else asked


def _with_machine(script: Script, facts: Facts, machine: tuple[int | None, int | None]) -> Facts:
    """Slurm's machine, or the GPUs that the placement asks of Ray."""
    from msgspec.structs import replace

    slurm = script.slurm
    if slurm.gpus is not None:
        return replace(facts, nodes=slurm.nodes, gpus_per_node=slurm.gpus_per_node, declared_gpus=slurm.gpus)
    needed = facts.needed_gpus
    nodes, per_node = machine
    if facts.colocated or needed is None:
        asked = product(nodes, per_node) if facts.colocated and needed is not None else None
        return replace(facts, nodes=nodes, gpus_per_node=per_node, declared_gpus=asked)
    if needed <= 8:
        return replace(facts, nodes=1, gpus_per_node=needed, declared_gpus=needed)
    fits = quotient(needed, per_node)
    return replace(facts, nodes=fits, gpus_per_node=per_node if fits else None, declared_gpus=needed)


def _algorithm(source: Settings, has_critic: bool) -> str:
    if source.has("trainer.ref.model.path") and "distill" in " ".join(
        str(word) for word in source.words("trainer.algorithm.policy_loss_type", "trainer.project_name")
    ):
        return "opd"
    return "ppo" if has_critic and source.text("trainer.algorithm.advantage_estimator") == "gae" else "grpo"


def _teacher(source: Settings) -> Teacher | None:
    """In distillation the reference model is the teacher and shares the trainer's GPUs."""
    if _algorithm(source, has_critic=False) != "opd":
        return None
    return Teacher(model=source.text("trainer.ref.model.path"), gpus=0)


def _settings(source: Settings) -> dict[str, Any]:
    found = mapped(source, _TABLE, _DEFAULTS)
    if steps := quotient(
        found["train.prompts_per_step"], source.integer("trainer.policy_mini_batch_size", default=256)
    ):
        found["train.optimizer_steps"] = steps
    found |= Variants(source).advantage("trainer.algorithm.advantage_estimator")
    ratio = _RATIOS.get(source.text("trainer.algorithm.policy_loss_type"))
    found |= {"grpo.ratio": ratio} if ratio else {}
    if source.flag("trainer.algorithm.use_kl_in_reward"):
        found["grpo.kl"] = "reward"
    elif source.flag("trainer.algorithm.use_kl_loss", default=True) is False:
        found["grpo.kl_coefficient"] = 0.0
    for key, name in (("data.train", "data.train_data"), ("data.eval", "data.val_data")):
        if files := first_of(source.text(name)):
            found[key] = files
    budget = source.integer("trainer.max_tokens_per_microbatch", default=-1)
    if budget and budget > 0:
        found["lengths.pack"] = budget
    elif not source.has("trainer.micro_train_batch_size_per_gpu"):
        found["roles.learner.micro_batch"] = 1
    if source.flag("trainer.policy.fsdp_config.cpu_offload"):
        found["roles.learner.offload"] = "all"
    if "roles.learner.offload" not in found and "fsdp" in source.text("trainer.strategy", default="fsdp2"):
        found["system"] = "verl"  # FSDP2 with the same float32 weights, loss and step
        if source.flag(f"{_PLACEMENT}.colocate_all", default=True):
            found["roles.learner.offload"] = "all"  # it leaves for the host while the engines are awake
    if source.text("trainer.strategy", default="fsdp2") == "megatron":
        stays = steps_on_host(source, "trainer.policy.megatron_config.optimizer_config_kwargs.")
        leaves = source.flag(f"{_PLACEMENT}.colocate_all", default=True)
        found |= ON_HOST if stays else IN_TURNS if leaves else MEGATRON
    return found


def _unsure(source: Settings, colocated: bool | None) -> tuple[str, ...]:
    """Megatron's cuts; and that colocated roles leave the card while the engines generate."""
    megatron = source.text("trainer.strategy", default="fsdp") == "megatron"
    pipeline = source.integer("trainer.policy.megatron_config.pipeline_model_parallel_size", default=1)
    return (*(on_megatron(pipeline) if megatron else ()), *(("roles.rollout.pool",) if colocated else ()))


def _notes(source: Settings) -> list[str]:
    said = source.has(f"{_PLACEMENT}.policy_num_gpus_per_node")
    return [] if said else [f"{_PLACEMENT}.policy_num_gpus_per_node: not said"]


def _supervised(source: Settings) -> Facts:
    nodes = source.integer("placement.num_nodes", f"{_PLACEMENT}.policy_num_nodes", default=1)
    per_node = source.integer("placement.num_gpus_per_node", f"{_PLACEMENT}.policy_num_gpus_per_node")
    model = source.text("model.path", "trainer.policy.model.path")
    return only_training(NAME, "sft", model, (nodes, per_node), product(nodes, per_node), remarks(source))
