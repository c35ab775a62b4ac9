"""EasyR1: ``verl.trainer.main`` with a YAML file and ``worker.…`` overrides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rltui.importers.arguments import Settings, from_mapping, from_overrides
from rltui.importers.config import settings_beside
from rltui.importers.facts import Facts, mapped, remarks
from rltui.importers.values import product, quotient

if TYPE_CHECKING:
    from rltui.importers.script import Script

NAME = "easyr1"
_TABLE: Mapping[str, str] = {
    "data.rollout_batch_size": "train.prompts_per_step",
    "worker.rollout.n": "train.samples_per_prompt",
    "worker.rollout.temperature": "train.temperature",
    "worker.rollout.top_p": "train.top_p",
    "worker.rollout.gpu_memory_utilization": "roles.rollout.memory_utilization",
    "worker.rollout.enforce_eager": "roles.rollout.enforce_eager",
    "worker.actor.optim.lr": "train.learning_rate",
    "worker.actor.optim.weight_decay": "train.weight_decay",
    "worker.actor.max_grad_norm": "train.gradient_clip",
    "worker.actor.clip_ratio_low": "grpo.clip_low",
    "worker.actor.clip_ratio_high": "grpo.clip_high",
    "worker.actor.micro_batch_size_per_device_for_update": "roles.learner.micro_batch",
    "worker.actor.model.enable_gradient_checkpointing": "roles.learner.gradient_checkpointing",
    "worker.actor.ulysses_size": "roles.learner.sequence_parallel",
    "algorithm.kl_coef": "grpo.kl_coefficient",
    "data.max_prompt_length": "lengths.prompt",
    "data.max_response_length": "lengths.response",
    "data.train_files": "data.train",
    "data.seed": "train.seed",
    "trainer.max_steps": "train.steps",
    "trainer.save_freq": "checkpoint.every",
    "trainer.val_freq": "data.eval_every",
    "trainer.project_name": "tracking.project",
}


def is_entry(word: str) -> bool:
    """Whether a word of a command is EasyR1's program."""
    return word == "verl.trainer.main" or word.endswith("verl/trainer/main.py")


def from_script(script: Script) -> list[Facts]:
    """What each training that the script starts needs."""
    return [_facts(*_settings(script, behind)) for _, behind in script.after(is_entry)]


def is_config(values: Mapping[str, Any]) -> bool:
    """Whether a configuration is EasyR1's."""
    return all(isinstance(values.get(part), dict) for part in ("worker", "trainer", "data", "algorithm"))


def from_config(values: Mapping[str, Any]) -> Facts:
    """What a configuration file needs."""
    return _facts(from_mapping(values), "")


def _settings(script: Script, behind: list[str]) -> tuple[Settings, str]:
    """The overrides over the file that ``config=`` names, and the name of the file where it is not there."""
    source = from_overrides(behind)
    if not source.has("config"):
        return source, ""
    own = settings_beside(script.path, source.file("config"))
    missing = source.text("config") or "the file of config="
    return (source, missing) if own is None else (source.over(own.values), "")


def _facts(source: Settings, missing: str) -> Facts:
    source.has("config")
    nodes = source.integer("trainer.nnodes", default=None if missing else 1)
    per_node = source.integer("trainer.n_gpus_per_node", default=None if missing else 8)
    gpus = product(nodes, per_node)
    size = source.integer("worker.rollout.tensor_parallel_size", default=None if missing else 2)
    estimator = source.text("algorithm.adv_estimator", default="grpo")
    algorithm = "ppo" if estimator == "gae" else "grpo"
    return Facts(
        dialect=NAME,
        algorithm=algorithm,
        model=source.text("worker.actor.model.model_path"),
        colocated=True,
        nodes=nodes,
        gpus_per_node=per_node,
        declared_gpus=gpus,
        trainer_gpus=gpus,
        rollout_gpus=gpus,
        rollout_tp=size,
        rollout_engines=quotient(gpus, size),
        critic="shared" if algorithm == "ppo" else "none",
        reference=not source.flag("algorithm.disable_kl"),
        source=source,
        settings=_mapped(source),
        notes=(
            *([f"{missing} is not beside the script, so what it sets is not known"] if missing else []),
            *remarks(source),
        ),
    )


def _mapped(source: Settings) -> dict[str, Any]:
    found = mapped(source, _TABLE, {"roles.learner.zero_stage": 3, "system": "verl", "grpo.kl_coefficient": 1e-3})
    if source.flag("algorithm.disable_kl"):
        found["grpo.kl_coefficient"] = 0.0
    batch = found.get("train.prompts_per_step")
    if steps := quotient(batch, source.integer("worker.actor.global_batch_size")):
        found["train.optimizer_steps"] = steps
    if source.flag("worker.actor.offload.offload_optimizer"):
        found["roles.learner.offload"] = "optimizer"
    if source.flag("worker.actor.offload.offload_params"):
        found["roles.learner.offload"] = "all"
    return found
