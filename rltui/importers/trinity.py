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
    "buffer.explorer_input.taskset.rollout_args.temperature": "train.temperature",
    "explorer.temperature": "train.temperature",
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


def is_config(values: Mapping[str, Any]) -> bool:
    """Whether a YAML file is Trinity-RFT's: a cluster of so many nodes, and an explorer."""
    cluster = values.get("cluster")
    return isinstance(cluster, dict) and "node_num" in cluster and isinstance(values.get("explorer"), dict)


def from_config(values: Mapping[str, Any]) -> Facts:
    """What a configuration needs.

    Args:
        values: The configuration, interpolated.
    """
    source = from_mapping(values)
    nodes, per_node = source.integer("cluster.node_num", default=1), source.integer("cluster.gpu_per_node", default=8)
    whole = product(nodes, per_node)
    mode = source.text("mode", default="both")
    size = source.integer(
        f"{_MODEL}.tensor_parallel_size", "explorer.tensor_parallel_size", default=1,
        key="roles.rollout.tensor_parallel",
    )  # fmt: skip
    engines = source.integer(f"{_MODEL}.engine_num", "explorer.engine_num", default=1)
    rollout = product(engines, size) if mode != "train" else 0
    others = _others(values)
    taken = total(rollout, others)
    alone = whole == 1 and mode == "both"  # on a single GPU explorer and trainer take turns
    rest = None if whole is None or taken is None else whole if alone else whole - taken
    trainer = 0 if mode in ("explore", "bench", "serve") else rest if rest is None or rest > 0 else None
    kind = source.text("algorithm.algorithm_type", "trainer.algorithm_type", default="ppo")
    source.has(*(name for name in source.values if name.startswith("explorer.auxiliary_models")))
    return Facts(
        dialect=NAME,
        algorithm=_ADVANTAGES.get(kind, "grpo") if mode == "both" else f"Trinity-RFT's mode {mode}",
        model=source.text("model.model_path", key="roles.learner.model"),
        colocated=alone,
        nodes=nodes,
        gpus_per_node=per_node,
        declared_gpus=whole,
        trainer_gpus=trainer,
        rollout_gpus=rollout,
        rollout_tp=size if mode != "train" else None,
        rollout_engines=engines if mode != "train" else None,
        critic="shared" if kind == "ppo" else "none",
        reference=_reference(source),
        other_gpus=0 if alone else others,
        source=source,
        settings=_settings(source),
        notes=remarks(source),
    )


def _others(values: Mapping[str, Any]) -> int | None:
    """GPUs of the models that judge or help beside the one that is trained."""
    explorer = values.get("explorer")
    models = explorer.get("auxiliary_models") if isinstance(explorer, dict) else None
    found = [from_mapping(model) for model in (models if isinstance(models, list) else ()) if isinstance(model, dict)]
    return total(
        *(
            product(one.integer("engine_num", default=1), one.integer("tensor_parallel_size", default=1))
            for one in found
        )
    )


def _reference(source: Settings) -> bool:
    coefficient = source.number("algorithm.kl_loss_fn_args.kl_coef", default=0.001)
    return source.text("algorithm.kl_loss_fn", default="k2") != "none" and coefficient != 0


def _settings(source: Settings) -> dict[str, Any]:
    found = mapped(source, _TABLE)
    step = source.integer("buffer.train_batch_size")
    samples = product(found.get("train.prompts_per_step"), found.get("train.samples_per_prompt"))
    if (steps := quotient(samples, step)) and steps > 1:
        found["train.optimizer_steps"] = steps
    found["roles.learner.zero_stage"] = 3
    return found
