"""axolotl's GRPO: YAML with ``rl: grpo`` and a ``trl:`` block, and the commands that name it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from rltui.importers import variants
from rltui.importers.arguments import Settings, from_flags, from_mapping
from rltui.importers.config import read_yaml
from rltui.importers.facts import Facts, mapped, remarks
from rltui.importers.script import Script, visible_gpus
from rltui.importers.source import one_beside, read_source
from rltui.importers.trl import has_reference
from rltui.importers.values import product, quotient, total

NAME = "axolotl"
_TRAIN = ("axolotl.cli.train", "axolotl.train")
_TABLE: Mapping[str, str] = {
    "trl.num_generations": "train.samples_per_prompt",
    "trl.max_completion_length": "lengths.response",
    "rl_beta": "grpo.kl_coefficient",
    "trl.beta": "grpo.kl_coefficient",
    "trl.num_iterations": "train.epochs",
    "trl.temperature": "train.temperature",
    "trl.top_p": "train.top_p",
    "learning_rate": "train.learning_rate",
    "weight_decay": "train.weight_decay",
    "max_grad_norm": "train.gradient_clip",
    "max_steps": "train.steps",
    "warmup_steps": "train.warmup_steps",
    "seed": "train.seed",
    "micro_batch_size": "roles.learner.micro_batch",
    "gradient_checkpointing": "roles.learner.gradient_checkpointing",
    "lora_r": "roles.learner.lora_rank",
    "trl.vllm_enable_sleep_mode": "roles.rollout.sleep_while_training",
    "vllm.gpu_memory_utilization": "roles.rollout.memory_utilization",
    "trl.vllm_gpu_memory_utilization": "roles.rollout.memory_utilization",
    "wandb_project": "tracking.project",
}
_DEFAULTS: Mapping[str, Any] = {"train.samples_per_prompt": 8, "lengths.response": 256}
"""What TRL, on which axolotl's GRPO is built, takes where a file is silent."""


def is_config(values: Mapping[str, Any]) -> bool:
    """Whether a YAML file is axolotl's and trains by GRPO."""
    return str(values.get("rl", "")).lower() in ("grpo", "gdpo") and "base_model" in values


def from_config(values: Mapping[str, Any], trainer: int | None = None) -> Facts:
    """What a configuration needs.

    Args:
        values: The configuration.
        trainer: Training processes, which the command counts.
    """
    source = from_mapping(values)
    uses = source.flag("trl.use_vllm", default=False)
    shares = source.text("trl.vllm_mode", default="server") == "colocate"
    size = source.integer("vllm.tensor_parallel_size", "trl.vllm_tensor_parallel_size", default=1)
    copies = source.integer("vllm.data_parallel_size", default=1)
    rollout = 0 if uses is False else None if uses is None else trainer if shares else product(size, copies)
    whole = trainer if shares or uses is False else total(trainer, rollout)
    trained = _settings(source, trainer)
    return Facts(
        dialect=NAME,
        algorithm="grpo",
        model=source.text("base_model", key="roles.learner.model"),
        colocated=True if uses is False or shares else False if uses else None,
        nodes=1 if trainer else None,
        gpus_per_node=whole,
        declared_gpus=whole,
        trainer_gpus=trainer,
        rollout_gpus=rollout,
        rollout_tp=size if uses else None,
        rollout_engines=quotient(rollout, size) if uses else None,
        reference=has_reference(source.number("trl.beta", "rl_beta", default=0.0), trained),
        source=source,
        settings=trained | ({"roles.rollout.engine": "hf"} if uses is False else {}),
        notes=remarks(source),
    )


def from_script(script: Script) -> list[Facts]:
    """What each training that the script starts needs; an engine of its own is counted by the configuration."""
    found = []
    for command in script.commands:
        words = list(command.words)
        names = [word.rsplit("/", 1)[-1] for word in words]
        behind = next((at + 1 for at, word in enumerate(words) if word in _TRAIN), None)
        if behind is None and "axolotl" in names and names[names.index("axolotl") + 1 :][:1] == ["train"]:
            behind = names.index("axolotl") + 2
        file = next((word for word in words[behind:] if word.endswith((".yaml", ".yml"))), "") if behind else ""
        target = one_beside(script.path, file) if file else None
        values = read_yaml(read_source(target), str(target)) if target else {}
        if is_config(values):
            flags = from_flags(words[1:])
            processes = flags.integer("num_processes", "nproc_per_node", default=visible_gpus(command))
            facts = from_config(values, processes)
            nodes, per_node = script.slurm.machine((facts.nodes, facts.gpus_per_node))
            declared = facts.declared_gpus if script.slurm.gpus is None else product(nodes, per_node)
            found.append(replace(facts, nodes=nodes, gpus_per_node=per_node, declared_gpus=declared))
    return found


def _settings(source: Settings, trainer: int | None) -> dict[str, Any]:
    found = mapped(source, _TABLE, _DEFAULTS)
    rows = product(
        source.integer("micro_batch_size", default=1), source.integer("gradient_accumulation_steps", default=1), trainer
    )
    samples = source.integer("trl.generation_batch_size", default=0) or rows
    if prompts := quotient(samples, found["train.samples_per_prompt"]):
        found["train.prompts_per_step"] = prompts
    found |= _variants(source)
    length = source.integer("sequence_len")
    if length and length > found["lengths.response"]:
        found["lengths.prompt"] = length - found["lengths.response"]
    stage = source.text("deepspeed")
    if known := next((number for number in (1, 2, 3) if f"zero{number}" in stage), None):
        found["roles.learner.zero_stage"] = known
    if "zero3" in stage and "offload" in stage:
        found["roles.learner.offload"] = "all"
    if not source.flag("trl.vllm_enable_sleep_mode") and source.text("trl.vllm_mode") == "colocate":
        found["roles.rollout.sleep_while_training"] = False
    datasets = source.words("datasets")
    if datasets and isinstance(datasets[0], dict) and datasets[0].get("path"):
        found["data.train"] = str(datasets[0]["path"])
    return found


def _variants(source: Settings) -> dict[str, Any]:
    """The variants of GRPO, which are TRL's behind ``trl.``."""
    inner = {name.removeprefix("trl."): words for name, words in source.values.items() if name.startswith("trl.")}
    own = Settings(inner, source.is_open, source.is_cut)
    found = variants.trl(own).found
    source.used |= {f"trl.{name}" for name in own.used}
    return found
