"""OpenRLHF: ``train_ppo_ray`` with underscored flags, or the dotted ones of later versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from rltui.importers import variants
from rltui.importers.arguments import Settings, from_flags
from rltui.importers.facts import Facts, mapped, only_training, remarks
from rltui.importers.script import Script, included_gpus, ray_gpus
from rltui.importers.values import product, quotient

NAME = "openrlhf"
_TABLE: Mapping[str, str] = {
    "rollout_batch_size": "train.prompts_per_step",
    "rollout.batch_size": "train.prompts_per_step",
    "n_samples_per_prompt": "train.samples_per_prompt",
    "rollout.n_samples_per_prompt": "train.samples_per_prompt",
    "actor_learning_rate": "train.learning_rate",
    "actor.adam.lr": "train.learning_rate",
    "temperature": "train.temperature",
    "top_p": "train.top_p",
    "rollout.temperature": "train.temperature",
    "rollout.top_p": "train.top_p",
    "seed": "train.seed",
    "train.seed": "train.seed",
    "max_norm": "train.gradient_clip",
    "actor.max_norm": "train.gradient_clip",
    "l2": "train.weight_decay",
    "actor.adam.weight_decay": "train.weight_decay",
    "max_epochs": "train.epochs",
    "train.max_epochs": "train.epochs",
    "prompt_max_len": "lengths.prompt",
    "generate_max_len": "lengths.response",
    "rollout.max_new_tokens": "lengths.response",
    "zero_stage": "roles.learner.zero_stage",
    "ds.zero_stage": "roles.learner.zero_stage",
    "zpg": "roles.learner.hpz_partition",
    "ds.zpg": "roles.learner.hpz_partition",
    "ring_attn_size": "roles.learner.sequence_parallel",
    "ds.ring_attn_size": "roles.learner.sequence_parallel",
    "ds_tensor_parallel_size": "roles.learner.tensor_parallel",
    "ds.tensor_parallel_size": "roles.learner.tensor_parallel",
    "micro_train_batch_size": "roles.learner.micro_batch",
    "train.micro_batch_size": "roles.learner.micro_batch",
    "lora_rank": "roles.learner.lora_rank",
    "ds.lora.rank": "roles.learner.lora_rank",
    "gradient_checkpointing": "roles.learner.gradient_checkpointing",
    "actor.gradient_checkpointing_enable": "roles.learner.gradient_checkpointing",
    "vllm_gpu_memory_utilization": "roles.rollout.memory_utilization",
    "vllm.gpu_memory_utilization": "roles.rollout.memory_utilization",
    "enforce_eager": "roles.rollout.enforce_eager",
    "vllm.enforce_eager": "roles.rollout.enforce_eager",
    "save_steps": "checkpoint.every",
    "ckpt.save_steps": "checkpoint.every",
    "prompt_data": "data.train",
    "data.prompt_dataset": "data.train",
    "gamma": "ppo.gamma",
    "lambd": "ppo.gae_lambda",
    "algo.advantage.gamma": "ppo.gamma",
    "algo.advantage.lambd": "ppo.gae_lambda",
    "critic_pretrain": "roles.critic.model",
    "critic.model_name_or_path": "roles.critic.model",
    "critic_learning_rate": "roles.critic.learning_rate",
    "critic.adam.lr": "roles.critic.learning_rate",
}

_DEFAULTS: Mapping[str, Any] = {
    "train.prompts_per_step": 1024,
    "train.samples_per_prompt": 1,
    "roles.learner.zero_stage": 2,
    "roles.learner.gradient_checkpointing": False,
}
"""What OpenRLHF takes where a command is silent."""

_TOGETHER = ("openrlhf.cli.train_ppo",)
"""PPO without Ray in older versions, whose processes hold actor, critic, reference and reward model each."""


def is_entry(word: str) -> bool:
    """Whether a word of a command is OpenRLHF's program."""
    return word.startswith("openrlhf.cli.train_") or word.rsplit("/", 1)[-1] == "train_ppo_ray.py"


def from_script(script: Script) -> list[Facts]:
    """What each training that the script starts needs."""
    found = []
    for command, behind in script.after(is_entry):
        entry = next(word for word in command.words if is_entry(word))
        source = from_flags(behind)
        if entry in _TOGETHER:
            found.append(_together(script, source, list(command.words)))
        elif "ppo" in entry or "grpo" in entry:
            found.append(_facts(script, source))
        else:
            found.append(_supervised(script, source, entry, list(command.words)))
    return found


def _facts(script: Script, source: Settings) -> Facts:
    estimator = source.text("advantage_estimator", "algo.advantage.estimator", default="gae")
    trainer = _group(source, "actor")
    engines = source.integer("vllm_num_engines", "vllm.num_engines", default=0, key="roles.rollout.engines")
    size = source.integer(
        "vllm_tensor_parallel_size", "vllm.tensor_parallel_size", default=1, key="roles.rollout.tensor_parallel"
    )
    rollout = product(engines, size)
    everything = source.flag("colocate_all_models", "train.colocate_all")
    asynchronous = source.flag("async_train", "train.async_enable")
    colocated = None if everything is None or asynchronous is None else everything and not asynchronous
    extra = _extra_groups(source, everything, estimator)
    algorithm = "ppo" if estimator == "gae" else "grpo"
    variant = variants.openrlhf(source, algorithm)
    facts = Facts(
        dialect=NAME,
        algorithm=algorithm,
        model=source.text("pretrain", "actor.model_name_or_path", key="roles.learner.model"),
        colocated=colocated,
        trainer_gpus=trainer,
        rollout_gpus=rollout,
        rollout_tp=None if engines == 0 else size,
        rollout_engines=engines if engines else None,
        critic="none" if estimator != "gae" else "shared" if extra["critic"] == 0 else "own",
        critic_gpus=extra["critic"],
        reference=extra["holds_reference"] == 1,
        reference_gpus=extra["ref"],
        other_gpus=extra["reward"],
        source=source,
        settings=variant.found | _settings(source),
        notes=(*_notes(everything, asynchronous), *variant.notes, *remarks(source, "--")),
    )
    return _with_machine(script, facts)


def _together(script: Script, source: Settings, words: list[str]) -> Facts:
    """PPO without Ray under the deepspeed launcher: every process holds all models, and transformers generates."""
    nodes, per_node = _launched(script, words)
    variant = variants.openrlhf(source, "ppo")
    return Facts(
        dialect=NAME,
        algorithm="ppo",
        model=source.text("pretrain", key="roles.learner.model"),
        colocated=True,
        nodes=nodes,
        gpus_per_node=per_node,
        declared_gpus=script.slurm.gpus or product(nodes, per_node),
        trainer_gpus=product(nodes, per_node),
        rollout_gpus=0,
        critic="shared",
        reference=True,
        source=source,
        settings=variant.found | _settings(source) | {"roles.rollout.engine": "hf"},
        notes=(*variant.notes, *remarks(source, "--")),
    )


def _launched(script: Script, words: list[str]) -> tuple[int | None, int | None]:
    """Nodes and processes of each under the deepspeed or torchrun launcher."""
    launcher = from_flags(words)
    if launcher.has("include"):
        named = launcher.text("include")
        nodes = len(named.split("@")) if named else None
        return nodes, quotient(included_gpus(named), nodes)
    per_node = launcher.integer("num_gpus", "nproc_per_node", default=script.slurm.gpus_per_node)
    return launcher.integer("num_nodes", "nnodes", default=script.slurm.nodes or 1), per_node


def _group(source: Settings, role: str) -> int | None:
    """GPUs of a role: nodes times GPUs a node; OpenRLHF takes 1 × 8 where the command is silent."""
    nodes = source.integer(f"{role}_num_nodes", f"{role}.num_nodes", default=1)
    return product(nodes, source.integer(f"{role}_num_gpus_per_node", f"{role}.num_gpus_per_node", default=8))


def _extra_groups(source: Settings, everything: bool | None, estimator: str) -> dict[str, int | None]:
    """GPUs of critic, reference and reward model beyond the actor's; 0 where they share or are not there."""
    reference, critic, reward = (_group(source, role) for role in ("ref", "critic", "reward"))
    kl = source.number("init_kl_coef", "algo.kl.init_coef", default=0.01)
    actor_ref = source.flag("colocate_actor_ref", "train.colocate_actor_ref", "train.colocate_fsdp_models")
    critic_reward = source.flag("colocate_critic_reward", "train.colocate_critic_reward")
    models = source.has("reward_pretrain", "reward.model_name_or_path")
    remote = source.has(
        "remote_rm_url", "reward.remote_url", "agent_func_path", "train.agent_path", "train.agent_func_path"
    )
    has_reward, has_critic, has_reference = models and not remote, estimator == "gae", kl is None or kl > 0
    if everything:
        reference, critic, reward = 0, 0, 0
    if everything is None:
        reference = critic = reward = None
    if actor_ref or not has_reference:
        reference = 0
    if not has_critic:
        critic = 0
    if not has_reward or (critic_reward and has_critic):
        reward = 0
    return {"ref": reference, "critic": critic, "reward": reward, "holds_reference": int(has_reference)}


def _with_machine(script: Script, facts: Facts) -> Facts:
    """The machine that Slurm or Ray is asked for; with neither, exactly what the roles need."""
    from msgspec.structs import replace

    slurm = script.slurm
    if slurm.present:
        return replace(facts, nodes=slurm.nodes, gpus_per_node=slurm.gpus_per_node, declared_gpus=slurm.gpus)
    needed = facts.needed_gpus
    started, per_node = ray_gpus(script)
    if not started:
        per_node = 8 if needed and needed > 8 else needed
    if not per_node or needed is None:
        return replace(facts, gpus_per_node=per_node)
    nodes = max(1, -(-needed // per_node))
    declared = nodes * per_node if started else needed
    return replace(facts, nodes=nodes, gpus_per_node=per_node, declared_gpus=declared)


def _settings(source: Settings) -> dict[str, Any]:
    found = mapped(source, _TABLE, _DEFAULTS)
    if source.flag("adam_offload", "ds.adam_offload"):
        found["roles.learner.offload"] = found["roles.critic.offload"] = "optimizer"
    samples = product(found["train.prompts_per_step"], found["train.samples_per_prompt"])
    if steps := quotient(samples, source.integer("train_batch_size", "train.batch_size", default=128)):
        found["train.optimizer_steps"] = steps
    bounds = list(source.words("eps_clip_low_high", "actor.eps_clip_low_high"))
    if len(bounds) == 2:
        low, high = (from_flags(["--x", str(bound)]).number("x") for bound in bounds)
        found |= {} if low is None or high is None else {"grpo.clip_low": low, "grpo.clip_high": high}
    dotted = any("." in name for name in source.values)
    if source.flag("use_dynamic_batch", "train.dynamic_batch_enable"):
        budget = source.integer("train_max_tokens_per_gpu", "train.max_tokens_per_gpu", default=16192)
        if ranks := product(budget, source.integer("ring_attn_size", "ds.ring_attn_size", default=1)):
            found["lengths.pack"] = ranks
    elif not source.has("micro_train_batch_size", "train.micro_batch_size"):
        found["roles.learner.micro_batch"] = 1 if dotted else 4
    whole = source.integer("data.max_len", default=2048 if dotted else None)
    if whole and whole > 1:
        response = min(found.get("lengths.response", whole // 2), whole - 1)
        found |= {"lengths.response": response, "lengths.prompt": found.get("lengths.prompt", whole - response)}
    return {"lengths.prompt": 1024, "lengths.response": 1024} | found


def _notes(everything: bool | None, asynchronous: bool | None) -> list[str]:
    if everything and asynchronous:
        return ["colocate_all with asynchronous training: the engines take GPUs of their own beside the trainer's"]
    return []


def _supervised(script: Script, source: Settings, entry: str, words: list[str]) -> Facts:
    """Fine-tuning, reward models and DPO under the deepspeed or torchrun launcher."""
    nodes, per_node = _launched(script, words)
    model = source.text("pretrain", "actor.model_name_or_path")
    facts = only_training(
        NAME, entry.rsplit("train_", 1)[-1], model, (nodes, per_node), product(nodes, per_node), remarks(source, "--"),
        script.slurm.gpus or None,
    )  # fmt: skip
    return replace(facts, source=source)
