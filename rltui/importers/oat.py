"""oat: flags of a program built on ``oat-llm``, whose actors are vLLM engines beside its learners or on their GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rltui.importers.arguments import Settings, from_flags
from rltui.importers.facts import Facts, mapped, remarks
from rltui.importers.script import Script, visible_gpus
from rltui.importers.shell_run import Started
from rltui.importers.values import product, quotient

NAME = "oat"
_SIGNS = frozenset({
    "collocate", "num_gpus_per_actor", "rollout_batch_size_per_device", "pi_buffer_maxlen_per_device",
    "vllm_gpu_ratio", "sync_params_every", "critic_type", "vllm_sleep", "oracle_type",
})  # fmt: skip
_ENOUGH = 3
"""Flags that only oat has, by which its programs are known, whatever their file is called."""

_TABLE: Mapping[str, str] = {
    "rollout_batch_size": "train.prompts_per_step",
    "num_samples": "train.samples_per_prompt",
    "num_ppo_epochs": "train.epochs",
    "learning_rate": "train.learning_rate",
    "temperature": "train.temperature",
    "top_p": "train.top_p",
    "max_norm": "train.gradient_clip",
    "seed": "train.seed",
    "prompt_max_length": "lengths.prompt",
    "generate_max_length": "lengths.response",
    "train_batch_size_per_device": "roles.learner.micro_batch",
    "zero_stage": "roles.learner.zero_stage",
    "lora_rank": "roles.learner.lora_rank",
    "gradient_checkpointing": "roles.learner.gradient_checkpointing",
    "vllm_gpu_ratio": "roles.rollout.memory_utilization",
    "beta": "grpo.kl_coefficient",
    "save_steps": "checkpoint.every",
    "eval_steps": "data.eval_every",
    "prompt_data": "data.train",
    "wb_project": "tracking.project",
}
_DEFAULTS: Mapping[str, Any] = {
    "train.learning_rate": 5e-7,
    "train.prompts_per_step": 128,
    "train.samples_per_prompt": 2,
    "lengths.prompt": 1024,
    "lengths.response": 512,
    "roles.learner.micro_batch": 1,
    "roles.learner.zero_stage": 2,
    "roles.rollout.memory_utilization": 0.25,
    "grpo.kl_coefficient": 0.1,
}
"""What oat takes where a command is silent."""


def from_script(script: Script) -> list[Facts]:
    """What each training that the script starts needs."""
    found = []
    for command in script.commands:
        entry = next((at for at, word in enumerate(command.words) if word.endswith(".py") or word == "-m"), None)
        if entry is None:
            continue
        source = from_flags(command.words[entry + 1 :])
        if len(_SIGNS & source.values.keys()) >= _ENOUGH:
            found.append(_facts(script, command, source))
    return found


def _facts(script: Script, command: Started, source: Settings) -> Facts:
    """Without ``--collocate`` a group's GPUs are halved; of an odd number one is shared."""
    per_group = source.integer("gpus", "total_gpus", default=8)
    groups = source.integer("num_groups", default=1)
    shared = source.flag("collocate", default=False)
    half = None if per_group is None or shared is None else per_group if shared else (per_group + 1) // 2
    size = source.integer("num_gpus_per_actor", default=1, key="roles.rollout.tensor_parallel")
    trainer = rollout = product(half, groups)
    odd = shared is False and per_group is not None and per_group % 2 == 1
    critic = source.text("critic_type", default="drgrpo") == "ppo"
    nodes, per_node = script.slurm.machine((groups, visible_gpus(command) or per_group))
    return Facts(
        dialect=NAME,
        algorithm="ppo" if critic else "grpo",
        model=source.text("pretrain", key="roles.learner.model"),
        colocated=None if odd else shared,
        nodes=nodes,
        gpus_per_node=per_node,
        declared_gpus=product(nodes, per_node),
        trainer_gpus=trainer,
        rollout_gpus=rollout,
        rollout_tp=size,
        rollout_engines=quotient(rollout, size),
        critic="shared" if critic else "none",
        reference=source.number("beta", default=0.1) != 0 or source.number("kl_penalty_coef", default=0.0) != 0,
        together=product(per_group, groups),
        source=source,
        settings=_settings(source),
        notes=remarks(source, "--"),
    )


def _settings(source: Settings) -> dict[str, Any]:
    found = mapped(source, _TABLE, _DEFAULTS)
    if source.text("critic_type", default="drgrpo") == "drgrpo":
        found |= {"grpo.advantage": "centered", "grpo.aggregation": "dr_grpo"}
    clip = source.number("cliprange", default=0.2)
    if clip is not None:
        found |= {"grpo.clip_low": clip, "grpo.clip_high": clip}
    if source.flag("adam_offload"):
        found["roles.learner.offload"] = "optimizer"
    return found
