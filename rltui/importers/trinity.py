"""Trinity-RFT: YAML whose explorer counts engines and whose trainer takes what they leave of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rltui.importers.arguments import Settings, from_mapping
from rltui.importers.facts import Facts, mapped, remarks
from rltui.importers.values import product, quotient, total

NAME = "trinity-rft"
_MODEL = "explorer.rollout_model"
_TABLE: Mapping[str, str] = {
    "buffer.batch_size": "train.prompts_per_step",
    "data.batch_size": "train.prompts_per_step",
    "explorer.repeat_times": "train.samples_per_prompt",
    "algorithm.repeat_times": "train.samples_per_prompt",
    "algorithm.optimizer.lr": "train.learning_rate",
    "model.temperature": "train.temperature",
    "explorer.temperature": "train.temperature",
    "buffer.explorer_input.taskset.rollout_args.temperature": "train.temperature",
    "model.top_p": "train.top_p",
    "algorithm.optimizer.weight_decay": "train.weight_decay",
    "trainer.grad_clip": "train.gradient_clip",
    "trainer.total_steps": "train.steps",
    "buffer.total_steps": "train.steps",
    "model.max_prompt_tokens": "lengths.prompt",
    "model.max_response_tokens": "lengths.response",
    f"{_MODEL}.gpu_memory_utilization": "roles.rollout.memory_utilization",
    f"{_MODEL}.enforce_eager": "roles.rollout.enforce_eager",
    "explorer.enforce_eager": "roles.rollout.enforce_eager",
    "trainer.save_interval": "checkpoint.every",
    "trainer.ulysses_sequence_parallel_size": "roles.learner.sequence_parallel",
    "explorer.eval_interval": "data.eval_every",
    "buffer.explorer_input.taskset.path": "data.train",
    "data.dataset_path": "data.train",
    "project": "tracking.project",
}
_ADVANTAGES = {"grpo": "grpo", "ppo": "ppo", "opmd": "grpo", "on_policy_distill": "opd"}
_NO_RL = ("sft", "dpo")
_NO_REFERENCE = ("dapo", "asymre", "raft", "sppo")
"""Algorithms that hold no reference unless a KL loss is asked for."""
_ELSEWHERE = ("tinker", "external")
"""Engines behind an address, which take none of the cluster's GPUs."""


def is_config(values: Mapping[str, Any]) -> bool:
    """Whether a YAML file is Trinity-RFT's: two of a cluster of so many nodes, a buffer of its own and an explorer."""
    cluster, buffer = values.get("cluster"), values.get("buffer")
    counts = isinstance(cluster, dict) and "node_num" in cluster
    return counts + isinstance(buffer, dict) + isinstance(values.get("explorer"), dict) > 1


def from_config(values: Mapping[str, Any]) -> Facts:
    """What a configuration needs.

    Args:
        values: The configuration, interpolated.
    """
    source = from_mapping(values)
    nodes, per_node = source.integer("cluster.node_num"), source.integer("cluster.gpu_per_node")
    nodes, per_node = nodes or None, per_node or None  # 0, as silence, stands for what Ray finds
    whole = product(nodes, per_node)
    mode = source.text("mode", default="both")
    size = _engine(source, f"{_MODEL}.", "explorer.", key="roles.rollout.tensor_parallel")
    engines = source.integer(f"{_MODEL}.engine_num", "explorer.engine_num", default=1)
    if absent := mode == "train" or _is_elsewhere(source, f"{_MODEL}."):
        size = engines = None
    rollout = 0 if absent else product(engines, size)
    others = _others(values) if mode != "train" else 0
    taken = total(rollout, others)
    alone = mode == "colocate" or (whole == 1 and mode == "both")  # explorer and trainer take turns on a single GPU
    rest = None if whole is None or taken is None else whole if alone else whole - taken
    trainer = 0 if mode in ("explore", "bench", "serve") else rest if rest is None or rest > 0 else None
    kind = source.text("algorithm.algorithm_type", "trainer.algorithm_type", default="ppo")
    source.has(*(name for name in source.values if name.startswith("explorer.auxiliary_models")))
    trains = mode in ("both", "colocate")
    named = kind if kind in _NO_RL else _ADVANTAGES.get(kind, "grpo") if trains else f"Trinity-RFT's mode {mode}"
    return Facts(
        dialect=NAME,
        algorithm=named,
        model=source.text("model.model_path", key="roles.learner.model"),
        colocated=alone,
        nodes=nodes,
        gpus_per_node=per_node,
        declared_gpus=whole,
        trainer_gpus=trainer,
        rollout_gpus=rollout,
        rollout_tp=size,
        rollout_engines=engines,
        critic="shared" if kind == "ppo" else "none",
        reference=_reference(source, kind),
        other_gpus=0 if alone else others,
        source=source,
        settings=_settings(source),
        notes=remarks(source),
    )


def _engine(source: Settings, *prefixes: str, key: str = "") -> int | None:
    """GPUs of one engine: its tensor, data and pipeline parallelism multiplied."""
    tensor, data, pipeline = (
        tuple(f"{prefix}{way}_parallel_size" for prefix in prefixes) for way in ("tensor", "data", "pipeline")
    )
    return product(
        source.integer(*tensor, default=1, key=key), source.integer(*data, default=1),
        source.integer(*pipeline, default=1),
    )  # fmt: skip


def _is_elsewhere(source: Settings, prefix: str = "") -> bool:
    return source.text(f"{prefix}engine_type") in _ELSEWHERE or bool(source.flag("model.tinker.enable"))


def _others(values: Mapping[str, Any]) -> int | None:
    """GPUs of the models that judge or help beside the one that is trained."""
    explorer = values.get("explorer")
    models = explorer.get("auxiliary_models") if isinstance(explorer, dict) else None
    found = [from_mapping(model) for model in (models if isinstance(models, list) else ()) if isinstance(model, dict)]
    here = [one for one in found if not _is_elsewhere(one)]
    return total(*(product(one.integer("engine_num", default=1), _engine(one, "")) for one in here))


def _reference(source: Settings, kind: str) -> bool:
    coefficient = source.number("algorithm.kl_loss_fn_args.kl_coef", default=0.001)
    default = "none" if kind in _NO_REFERENCE else "k2"
    return source.text("algorithm.kl_loss_fn", default=default) != "none" and coefficient != 0


def _settings(source: Settings) -> dict[str, Any]:
    found = mapped(source, _TABLE)
    if source.flag("trainer.param_offload"):
        found["roles.learner.offload"] = "all"
    elif source.flag("trainer.optimizer_offload"):
        found["roles.learner.offload"] = "optimizer"
    adapters = source.one("model.lora_configs")
    if isinstance(adapters, dict):
        found["roles.learner.lora_rank"] = from_mapping(adapters).integer("lora_rank", default=32) or 0
    step = source.integer("buffer.train_batch_size")
    samples = product(found.get("train.prompts_per_step"), found.get("train.samples_per_prompt"))
    if (steps := quotient(samples, step)) and steps > 1:
        found["train.optimizer_steps"] = steps
    found["roles.learner.zero_stage"] = 3
    return found
