"""AReaL: YAML with the allocation grammar, ``sglang:d4t2`` a role or ``sglang:d4+fsdp:d4`` for all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from rltui.importers.arguments import Settings, from_mapping
from rltui.importers.facts import MEGATRON, Facts, Teacher, mapped, on_megatron, remarks
from rltui.importers.values import product, total

NAME = "areal"
_ENGINES = ("sglang", "vllm")
_PART = re.compile(r"(?:(?P<backend>[a-z_]+)(?:\[[\w-]+\])?[:.])?(?P<size>\(?[^()]*\)?)\Z")
_FACTOR = re.compile(r"([a-z])(\d+)")
_TABLE: Mapping[str, str] = {
    "train_dataset.batch_size": "train.prompts_per_step",
    "gconfig.n_samples": "train.samples_per_prompt",
    "gconfig.temperature": "train.temperature",
    "gconfig.top_p": "train.top_p",
    "gconfig.max_new_tokens": "lengths.response",
    "train_dataset.max_length": "lengths.prompt",
    "actor.optimizer.lr": "train.learning_rate",
    "actor.optimizer.weight_decay": "train.weight_decay",
    "actor.optimizer.gradient_clipping": "train.gradient_clip",
    "actor.ppo_n_minibatches": "train.optimizer_steps",
    "total_train_steps": "train.steps",
    "seed": "train.seed",
    "rollout.max_head_offpolicyness": "train.async_steps",
    "actor.gradient_checkpointing": "roles.learner.gradient_checkpointing",
    "actor.mb_spec.max_tokens_per_mb": "lengths.pack",
    "actor.eps_clip": "grpo.clip_low",
    "actor.eps_clip_higher": "grpo.clip_high",
    "actor.kl_ctl": "grpo.kl_coefficient",
    "train_dataset.path": "data.train",
    "stats_logger.wandb.mode": "tracking.wandb",
    "stats_logger.wandb.project": "tracking.project",
}

_DEFAULTS: Mapping[str, Any] = {
    "roles.learner.gradient_checkpointing": False,
    "roles.learner.zero_stage": 3,
    "roles.rollout.memory_utilization": 0.9,
    "train.samples_per_prompt": 1,
    "train.optimizer_steps": 4,
    "lengths.response": 16384,
}
"""What AReaL takes where a configuration is silent (``areal.api.cli_args``)."""


class Allocation(Struct, frozen=True):
    """One part of an allocation; sizes are None where the text is not understood."""

    backend: str
    gpus: int | None
    data: int | None = None
    tensor: int | None = None
    pipeline: int | None = None
    context: int | None = None
    expert: int | None = None

    @property
    def generates(self) -> bool:
        """Whether the part is for engines."""
        return self.backend in _ENGINES


def read_allocation(text: str) -> Allocation:
    """Read ``backend:d4p1t2c1`` or ``megatron:(attn:d2p2t2c2|ffn:d2p2e4)``; the size is d · p · t · c.

    Before it was called ``t`` (tensor), it was ``m`` (model).
    """
    match = _PART.match(text.strip())
    if match is None:
        return Allocation("", None)
    backend = match["backend"] or ""
    size = match["size"].strip()
    experts = re.search(r"ffn[:.]\w*e(\d+)", size)
    if size.startswith("("):
        attention = next((part for part in size.strip("()").split("|") if part.startswith("attn")), "")
        size = attention.partition(":")[2] or attention.partition(".")[2]
    factors = dict(_FACTOR.findall(size.replace("m", "t")))
    if not factors or _FACTOR.sub("", size) or not factors.keys() <= set("dptce"):
        return Allocation(backend, None)
    numbers = {name: int(count) for name, count in factors.items()}
    gpus = product(*(numbers.get(name, 1) for name in "dptc"))
    data, tensor, pipeline, context = (numbers.get(name, 1) for name in "dtpc")
    expert = int(experts[1]) if experts else numbers.get("e", 1)
    return Allocation(backend, gpus, data, tensor, pipeline, context, expert)


def experts_fit(text: str) -> bool:
    """Whether the GPUs of experts in an allocation are those of attention; also where that cannot be told."""
    return all(_fit(part) for part in _split(text))


def _fit(part: str) -> bool:
    allocation = read_allocation(part)
    experts = part.partition("|")[2]
    ways = {name: int(size) for name, size in _FACTOR.findall(experts.rpartition(":")[2])} if experts else {}
    if not allocation.gpus or (not experts and allocation.expert in (None, 1)):
        return True
    pipeline = ways.get("p", allocation.pipeline or 1)
    group = pipeline * ways.get("t", 1) * (allocation.expert or 1)
    whole = group * ways["d"] == allocation.gpus if "d" in ways else allocation.gpus % group == 0
    return whole and pipeline == allocation.pipeline


def is_config(values: dict[str, Any]) -> bool:
    """Whether a configuration is AReaL's."""
    actor = values.get("actor")
    if "experiment_name" not in values:
        return False
    return "allocation_mode" in values or ("cluster" in values and (isinstance(actor, dict) or "model" in values))


def from_config(values: dict[str, Any]) -> Facts:
    """What layout and checks need of AReaL's configuration, older spellings included."""
    source = from_mapping(values)
    has_cluster = isinstance(values.get("cluster"), dict)
    # before 2025-08 the experiment's own nodes stood outside of the cluster's
    nodes = source.integer("n_nodes", "cluster.n_nodes", key="hardware.nodes")
    per_node = source.integer(
        "n_gpus_per_node", "cluster.n_gpus_per_node", default=8 if has_cluster else None, key="hardware.gpus_per_node"
    )
    trainer, engines, others, colocated = _roles(source, values)
    generates = engines is not None
    coefficient = source.number("actor.kl_ctl", default=0.1)
    reference = isinstance(values.get("ref"), dict) and (coefficient is None or coefficient > 0)
    # an allocation of engines alone is for evaluation
    evaluates = trainer is None and engines is not None and bool(source.text("allocation_mode"))
    return Facts(
        dialect=NAME,
        algorithm="evaluation" if evaluates else _algorithm(values, generates),
        model=source.text("actor.path", "model.path", key="roles.learner.model"),
        colocated=None if evaluates else colocated,
        together=engines.gpus if evaluates and engines else None,
        nodes=nodes,
        gpus_per_node=per_node,
        declared_gpus=product(nodes, per_node),
        trainer_gpus=trainer.gpus if trainer else None,
        rollout_gpus=engines.gpus if engines else 0,
        rollout_tp=engines.tensor if engines else None,
        rollout_engines=engines.data if engines else None,
        critic="shared" if isinstance(values.get("critic"), dict) else "none",
        critic_gpus=_own(source, "critic"),
        reference=reference,
        reference_gpus=_own(source, "ref") if reference else 0,
        teacher=_teacher(source) if isinstance(values.get("teacher"), dict) else None,
        other_gpus=others,
        source=source,
        settings={**({"grpo.kl_coefficient": 0.1} if reference else {}), **_settings(source, trainer)},
        unsure=_unsure(trainer),
        notes=remarks(source),
    )


def _roles(
    source: Settings, values: dict[str, Any]
) -> tuple[Allocation | None, Allocation | None, int | None, bool | None]:
    """Trainer, engines, GPUs of other parts, and whether trainer and engines share theirs."""
    mode = source.text("allocation_mode")
    if mode:
        shared = "|" in re.sub(r"\([^)]*\)", "", mode)
        parts = [read_allocation(part) for part in _split(mode) if part not in ("eval", "cpu")]
        engines = next((part for part in parts if part.generates), None)
        trainer = next((part for part in parts if not part.generates), None)
        rest = [part.gpus for part in parts if part not in (engines, trainer)]
        others = None if shared and rest else total(*rest)
        return trainer, engines, others, shared
    actor = "actor" if isinstance(values.get("actor"), dict) else "model"
    trainer = _role(source, actor)
    if not isinstance(values.get("rollout"), dict):
        return trainer, None, 0, False
    engines = _role(source, "rollout") or Allocation("", None)
    # either may be the one that is placed on the other
    strategies = [source.text(f"{role}.scheduling_strategy.type") for role in ("rollout", actor)]
    return trainer, engines, 0, "colocation" in strategies


def _role(source: Settings, role: str) -> Allocation | None:
    text = source.text(f"{role}.backend")
    return read_allocation(text) if text else None


def _split(mode: str) -> list[str]:
    """Parts between ``+`` and ``|`` outside brackets."""
    parts, depth = [""], 0
    for char in mode:
        depth += (char == "(") - (char == ")")
        if char in "+|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part for part in parts if part]


def _own(source: Settings, role: str) -> int | None:
    """GPUs of a role beyond the actor's.

    Ray and Slurm place a role with a backend of its own apart, unless it says where. On one machine roles are dealt
    out over its GPUs again and again, so those that say nothing share.
    """
    cluster = source.text("scheduler.type") in ("ray", "slurm") and not source.has("allocation_mode")
    default = "separation" if cluster and source.has(f"{role}.backend") else ""
    if source.text(f"{role}.scheduling_strategy.type", default=default) != "separation":
        return 0
    allocation = _role(source, role)
    return allocation.gpus if allocation else None


def _teacher(source: Settings) -> Teacher:
    """A teacher that scores with a trainer's engine, or with an inference engine (``engine_type: rollout``)."""
    served = source.text("teacher.engine_type") == "rollout"
    allocation = _role(source, "teacher.rollout" if served else "teacher")
    return Teacher(
        model=source.text("teacher.path"),
        gpus=allocation.gpus if served and allocation else _own(source, "teacher"),
        tensor_parallel=allocation.tensor if allocation else None,
    )


def _algorithm(values: dict[str, Any], generates: bool) -> str:
    if not generates:
        return "sft"
    if isinstance(values.get("teacher"), dict):
        return "opd"
    return "ppo" if isinstance(values.get("critic"), dict) else "grpo"


def _settings(source: Settings, trainer: Allocation | None) -> dict[str, Any]:
    found = mapped(source, _TABLE, _DEFAULTS)
    if source.flag("actor.use_lora"):  # the rank has a default, and says nothing by itself
        found["roles.learner.lora_rank"] = source.integer("actor.lora_rank", default=32) or 0
    if source.flag("actor.fsdp.offload_params"):
        found["roles.learner.offload"] = "all"
    engine = "vllm" if "vllm" in source.text("rollout.backend") + source.text("allocation_mode") else "sglang"
    share = source.number("vllm.gpu_memory_utilization" if engine == "vllm" else "sglang.mem_fraction_static")
    if share is not None:
        found["roles.rollout.memory_utilization"] = share
    words = {"tensor": "tensor", "context": "sequence", "pipeline": "pipeline", "expert": "expert"}
    for way, key in words.items():
        if (size := getattr(trainer, way, None)) and size > 1:
            found[f"roles.learner.{key}_parallel"] = size
    if trainer and trainer.backend == "megatron":
        found |= MEGATRON
    if "grpo.clip_low" in found:
        found.setdefault("grpo.clip_high", found["grpo.clip_low"])
    if "lengths.pack" not in found and source.integer("actor.mb_spec.n_mbs", default=1) == 1:
        found["roles.learner.micro_batch"] = 0
    return found


def _unsure(trainer: Allocation | None) -> tuple[str, ...]:
    """Trainers that are not FSDP keep and share states in ways for which a layout has no word."""
    backend = trainer.backend if trainer else ""
    return () if backend in ("", "fsdp") else on_megatron(trainer.pipeline if trainer else None)
