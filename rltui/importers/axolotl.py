"""axolotl: YAML with ``base_model``, of GRPO with ``rl: grpo`` and a ``trl:`` block, and the commands that name it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from rltui.importers import variants
from rltui.importers.accelerate import fsdp_of_transformers, fsdp_states, processes, read_config
from rltui.importers.arguments import Settings, from_flags, from_mapping
from rltui.importers.config import read_yaml
from rltui.importers.facts import Facts, mapped, only_training, remarks
from rltui.importers.script import Script
from rltui.importers.source import one_beside, read_source
from rltui.importers.trl import has_reference
from rltui.importers.values import product, quotient, total

NAME = "axolotl"
_TRAIN = ("axolotl.cli.train", "axolotl.train")
_SERVE = "vllm-serve"
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
    "sequence_parallel_degree": "roles.learner.sequence_parallel",
    "context_parallel_size": "roles.learner.sequence_parallel",
    "trl.vllm_enable_sleep_mode": "roles.rollout.sleep_while_training",
    "vllm.gpu_memory_utilization": "roles.rollout.memory_utilization",
    "vllm.enforce_eager": "roles.rollout.enforce_eager",
    "wandb_project": "tracking.project",
}
_DEFAULTS: Mapping[str, Any] = {
    "train.samples_per_prompt": 8,
    "lengths.response": 256,
    "roles.learner.micro_batch": 1,
    "roles.rollout.memory_utilization": 0.9,
}
"""What axolotl, or TRL on which its GRPO is built, takes where a file is silent."""

_KEYS = frozenset({"datasets", "micro_batch_size", "rl", "gradient_accumulation_steps"})
_WAYS = ("sequence_parallel_degree", "context_parallel_size")


def is_config(values: Mapping[str, Any]) -> bool:
    """Whether a YAML file is axolotl's: it has a base model, and something to train it on or by."""
    return "base_model" in values and not _KEYS.isdisjoint(values)


def from_config(values: Mapping[str, Any], trainer: int | None = None, *, serves: bool = False) -> Facts:
    """What a configuration needs.

    Args:
        values: The configuration.
        trainer: Training processes, which the command counts.
        serves: Whether its engine is started beside it, as ``axolotl vllm-serve`` does.
    """
    source = from_mapping(values)
    kind = source.text("rl").lower()
    if kind not in ("grpo", "gdpo"):
        machine = (1 if trainer else None, trainer)
        facts = only_training(NAME, kind or "sft", source.text("base_model"), machine, trainer, remarks(source))
        return replace(facts, source=source)
    uses = source.flag("trl.use_vllm", default=False)
    # what vLLM does where nothing says it differs between versions of TRL: a server until March 2026
    mode = source.text("trl.vllm_mode") or ("server" if serves else "")
    shares = mode == "colocate"
    size = source.integer("vllm.tensor_parallel_size", "trl.vllm_tensor_parallel_size", default=1)
    copies = source.integer("vllm.data_parallel_size", default=1)
    rollout = 0 if uses is False else None if not (uses and mode) else trainer if shares else product(size, copies)
    whole = trainer if shares or uses is False else total(trainer, rollout)
    trained = _settings(source, trainer)
    return Facts(
        dialect=NAME,
        algorithm="grpo",
        model=source.text("base_model", key="roles.learner.model"),
        colocated=True if uses is False or shares else False if uses and mode else None,
        nodes=1 if trainer else None,
        gpus_per_node=whole,
        declared_gpus=whole,
        trainer_gpus=trainer,
        rollout_gpus=rollout,
        rollout_tp=size if uses else None,
        rollout_engines=quotient(rollout, size) if uses else None,
        reference=has_reference(source.number("trl.beta", "rl_beta", default=0.0), trained),
        unsure=() if source.has("trl.max_completion_length") else ("lengths.prompt", "lengths.response"),
        source=source,
        settings=trained | ({"roles.rollout.engine": "hf"} if uses is False else {}),
        notes=remarks(source),
    )


def from_script(script: Script) -> list[Facts]:
    """What each training that the script starts needs; an engine of its own is counted by the configuration."""
    found = []
    serves = any(_SERVE in command.words for command in script.commands)
    for command in script.commands:
        words = list(command.words)
        behind = _behind(words)
        at = next((at for at, word in enumerate(words) if at >= behind and word.endswith((".yaml", ".yml"))), 0)
        target = one_beside(script.path, words[at]) if behind and at else None
        values = read_yaml(read_source(target), str(target)) if target else {}
        if is_config(values):
            values = _overridden(values, words[at + 1 :])
            flags = from_flags(words[1:])
            alone = flags.text("launcher") == "python" or words[0].rsplit("/", 1)[-1] in ("python", "python3")
            trainer = 1 if alone else processes(script, command, flags, read_config(script, flags))
            nodes = flags.integer("num_machines", "nnodes", default=1)
            found.append(_on_machine(from_config(values, trainer, serves=serves), script, nodes))
    return found


def _behind(words: list[str]) -> int:
    """Where the words of axolotl's training begin; 0 where a command is none of it."""
    names = [word.rsplit("/", 1)[-1] for word in words]
    behind = next((at + 1 for at, word in enumerate(words) if word in _TRAIN), 0)
    if not behind and "axolotl" in names and names[names.index("axolotl") + 1 :][:1] == ["train"]:
        return names.index("axolotl") + 2
    return behind


def _overridden(values: dict[str, Any], words: list[str]) -> dict[str, Any]:
    """The file under the command's own options (``--micro-batch-size 2``, ``--trl.beta 0.1``), of names that it has."""
    given = from_flags(words)
    found = dict(values)
    for name, words_of_it in given.values.items():
        section, dot, key = name.rpartition(".")
        place = found.get(section) if dot else found
        if isinstance(place, dict) and len(words_of_it) == 1 and (key in place or key in _TABLE):
            found = {**found, section: {**place, key: words_of_it[0]}} if dot else {**found, key: words_of_it[0]}
    return found


def _on_machine(facts: Facts, script: Script, launched: int | None) -> Facts:
    """The nodes that a launcher counts, under those that Slurm is asked for."""
    if launched and launched > 1:
        per_node = quotient(facts.gpus_per_node, launched)
        facts = replace(facts, nodes=launched, gpus_per_node=per_node)
    nodes, per_node = script.slurm.machine((facts.nodes, facts.gpus_per_node))
    declared = facts.declared_gpus if script.slurm.gpus is None else product(nodes, per_node)
    return replace(facts, nodes=nodes, gpus_per_node=per_node, declared_gpus=declared)


def _settings(source: Settings, trainer: int | None) -> dict[str, Any]:
    found = mapped(source, _TABLE, _DEFAULTS)
    if not source.text("adapter"):
        found.pop("roles.learner.lora_rank", None)  # a rank alone makes no adapter
    groups = quotient(trainer, source.integer(*_WAYS, default=1))  # ranks that share a sequence have its rows together
    rows = product(
        source.integer("micro_batch_size", default=1), source.integer("gradient_accumulation_steps", default=1), groups
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
    found |= _fsdp(source)
    if not source.flag("trl.vllm_enable_sleep_mode") and source.text("trl.vllm_mode") == "colocate":
        found["roles.rollout.sleep_while_training"] = False
    datasets = source.words("datasets")
    if datasets and isinstance(datasets[0], dict) and datasets[0].get("path"):
        found["data.train"] = str(datasets[0]["path"])
    return found


def _fsdp(source: Settings) -> dict[str, Any]:
    """What FSDP's section says, whose names have lost their ``fsdp_`` in 2025; where it is silent, all is divided."""
    names = [name for name in source.values if name.startswith("fsdp_config.")]
    source.has("fsdp_version", *names)
    whole = {"roles.learner.zero_stage": 3} if names else {}
    own = {f"fsdp_{name.partition('.')[2].removeprefix('fsdp_')}": source.one(name) for name in names}
    return whole | fsdp_of_transformers(source) | fsdp_states(own)


def _variants(source: Settings) -> dict[str, Any]:
    """The variants of GRPO, which are TRL's behind ``trl.``."""
    inner = {name.removeprefix("trl."): words for name, words in source.values.items() if name.startswith("trl.")}
    own = Settings(inner, source.is_open, source.is_cut)
    found = variants.trl(own).found
    source.used |= {f"trl.{name}" for name in own.used}
    return found
