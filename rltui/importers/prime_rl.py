"""prime-rl: TOML with a ``[deployment]`` of trainer and inference GPUs or nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rltui.importers.arguments import Settings, from_mapping
from rltui.importers.facts import Facts, mapped, remarks
from rltui.importers.values import HOLE, product, quotient, total

NAME = "prime-rl"
_SIZES = (
    "deployment.type", "deployment.num_train_gpus", "deployment.num_infer_gpus", "deployment.num_gpus",
    "deployment.gpus_per_node", "deployment.num_train_nodes", "deployment.num_infer_nodes", "deployment.num_nodes",
    "deployment.num_infer_replicas", "inference.deployment.type", "inference.parallel.tp", "inference.parallel.dp",
)  # fmt: skip
"""What decides about GPUs; a file that this one builds on may set any of them."""
_ENGINE_SIZES = ("inference.parallel.tp", "inference.vllm.tensor_parallel_size", "inference.tp")
_RESPONSES = ("orchestrator.train.sampling.max_completion_tokens", "orchestrator.sampling.max_tokens")
_TABLE: Mapping[str, str] = {
    "orchestrator.max_steps": "train.steps",
    "trainer.max_steps": "train.steps",
    "max_steps": "train.steps",
    "trainer.optim.lr": "train.learning_rate",
    "optim.lr": "train.learning_rate",
    "trainer.optim.weight_decay": "train.weight_decay",
    "trainer.optim.max_norm": "train.gradient_clip",
    "orchestrator.sampling.temperature": "train.temperature",
    "orchestrator.train.sampling.temperature": "train.temperature",
    "orchestrator.max_off_policy_steps": "train.async_steps",
    "orchestrator.seed": "train.seed",
    "orchestrator.train.sampling.max_completion_tokens": "lengths.response",
    "orchestrator.sampling.max_tokens": "lengths.response",
    "orchestrator.seq_len": "lengths.pack",
    "seq_len": "lengths.pack",
    "trainer.model.seq_len": "lengths.pack",
    "trainer.model.lora.rank": "roles.learner.lora_rank",
    "trainer.model.cp": "roles.learner.sequence_parallel",
    "inference.gpu_memory_utilization": "roles.rollout.memory_utilization",
    "inference.vllm.gpu_memory_utilization": "roles.rollout.memory_utilization",
    "inference.model.enforce_eager": "roles.rollout.enforce_eager",
    "inference.vllm.enforce_eager": "roles.rollout.enforce_eager",
    "trainer.enable_router_replay": "roles.rollout.router_replay",
    "ckpt.interval": "checkpoint.every",
    "trainer.ckpt.interval": "checkpoint.every",
    "ckpt.keep_last": "checkpoint.keep",
    "orchestrator.eval.interval": "data.eval_every",
    "wandb.project": "tracking.project",
    "monitors.wandb.project": "tracking.project",
    "slurm.partition": "slurm.partition",
    "slurm.account": "slurm.account",
    "slurm.time": "slurm.time",
}

_DEFAULTS: Mapping[str, Any] = {
    "train.learning_rate": 1e-6,
    "lengths.pack": 2048,
    "roles.learner.zero_stage": 3,
    "roles.learner.gradient_checkpointing": True,
    "roles.rollout.memory_utilization": 0.9,
    "system": "prime-rl",
}
"""What prime-rl takes where a configuration is silent."""


def is_config(values: dict[str, Any]) -> bool:
    """Whether a TOML file is prime-rl's."""
    return bool({"deployment", "orchestrator", "trainer", "inference"} & values.keys()) or (
        "model" in values and "data" in values
    )


def from_config(values: dict[str, Any], missing: Sequence[str] = ()) -> Facts:
    """What a configuration needs.

    Args:
        values: The configuration over the files that it builds on.
        missing: Files that it builds on and that are not there; what they would say is not known.
    """
    source = from_mapping(values)
    if missing:
        source.values |= {name: [HOLE] for name in _SIZES if name not in source.values}
    generates = bool({"orchestrator", "inference", "trainer"} & values.keys())
    generates = generates and source.integer("deployment.num_infer_gpus") != 0  # else it learns from samples of others
    kind = source.text("deployment.type", default="single_node")
    several = kind == "multi_node"
    serves = generates and (bool(missing) or "inference" in values)  # else its engines are started by somebody else
    size = source.integer(*_ENGINE_SIZES, default=1, key="roles.rollout.tensor_parallel")
    data = source.integer("inference.parallel.dp", "inference.vllm.data_parallel_size")
    machine = _several_nodes(source, serves) if several else _one_node(source, serves)
    trainer, rollout, nodes, per_node = machine if kind else (None, None, None, None)
    # over several nodes an engine may span them by other ways than its size, which then has to be said
    by_size = quotient(rollout, size) if not several or source.has(*_ENGINE_SIZES) else None
    fills = data in (None, 1) or product(size, data) == rollout  # as many copies as prime-rl makes by itself
    engines = _engines(source, several, by_size) if several or fills else None
    return Facts(
        dialect=NAME,
        algorithm=_algorithm(source) if generates else "sft",
        model=source.text("model.name", "trainer.model.name", "orchestrator.model.name", key="roles.learner.model"),
        colocated=False,
        nodes=nodes,
        gpus_per_node=per_node,
        declared_gpus=product(total(nodes, _other_nodes(source)), per_node)
        if several
        else total(trainer, rollout, _other_gpus(source, 0)),
        trainer_gpus=trainer,
        rollout_gpus=rollout,
        rollout_tp=size if serves else None,
        rollout_engines=engines if serves else None,
        other_gpus=_other_gpus(source, per_node if several else 0),
        source=source.cut() if missing else source,
        settings=_settings(source),
        unsure=(*_unsure(source), *(("roles.rollout",) if generates and not serves else ())),
        notes=(
            *(f"toml_files: {file} is not there, so what it sets is not known" for file in missing),
            *remarks(source),
        ),
    )


def _one_node(source: Settings, serves: bool) -> tuple[int | None, int | None, int | None, int | None]:
    """Trainer, engines, nodes and GPUs a node; each side takes one GPU where the file is silent."""
    trainer = source.integer(
        "deployment.num_train_gpus", "deployment.num_gpus", "trainer_gpus", default=_listed(source, "trainer")
    )
    engines = ("deployment.num_infer_gpus", "inference_gpus")  # the latter is what its elders counted by
    rollout = source.integer(*engines, default=_listed(source, "inference")) if serves else 0
    return trainer, rollout, 1, total(trainer, rollout, _other_gpus(source, 0))


def _listed(source: Settings, side: str) -> int | None:
    """GPUs of a side where the file lists them one by one, as its elders did; else one."""
    listed = source.words(f"{side}_gpu_ids")
    return len(listed) if listed else 1


def _several_nodes(source: Settings, serves: bool) -> tuple[int | None, int | None, int | None, int | None]:
    per_node = source.integer("deployment.gpus_per_node", default=8)
    train = source.integer("deployment.num_train_nodes", "deployment.num_nodes", default=_listed(source, ""))
    infer = _infer_nodes(source) if serves else 0
    return product(train, per_node), product(infer, per_node), total(train, infer), per_node


def _infer_nodes(source: Settings) -> int | None:
    """Nodes of all replicas; a replica that separates prefill and decode has nodes of both."""
    replicas = source.integer("deployment.num_infer_replicas", default=1)
    kind = source.text("inference.deployment.type")
    if kind == "disaggregated":
        return product(replicas, total(_nodes_of(source, "prefill"), _nodes_of(source, "decode")))
    own = source.integer("inference.deployment.num_nodes", default=2) if kind == "multi_node" else 1
    return product(replicas, source.integer("deployment.num_infer_nodes", default=own))


def _nodes_of(source: Settings, part: str) -> int | None:
    """Nodes that prefill or decode: those of each engine, or all of them as they were counted before July 2026."""
    every = f"inference.deployment.num_{part}_nodes"
    if source.has(every):
        return source.integer(every)
    engines = source.integer(f"inference.deployment.num_{part}_replicas", default=1)
    return product(engines, source.integer(f"inference.deployment.{part}_nodes_per_replica", default=1))


def _engines(source: Settings, several: bool, by_size: int | None) -> int | None:
    """Engines of so many GPUs, of which each node starts as many as it holds.

    Experts in parallel, and prefill apart from decode, join all of a replica's; None where that gives another number.
    """
    joins = source.flag("inference.vllm.enable_expert_parallel", "inference.enable_expert_parallel") is not False
    if not several or (by_size and not joins and source.text("inference.deployment.type") != "disaggregated"):
        return by_size
    replicas = source.integer("deployment.num_infer_replicas", default=1)
    return replicas if by_size in (None, replicas) else None


def _other_gpus(source: Settings, per_node: int | None) -> int | None:
    """GPUs of teachers, value models and whatever else the deployment counts apart; nodes of theirs are whole."""
    gpus = [source.integer(name) for name in _others(source, "gpus")]
    return total(*gpus, product(_other_nodes(source), per_node))


def _other_nodes(source: Settings) -> int | None:
    return total(*(source.integer(name) for name in _others(source, "nodes")))


def _others(source: Settings, unit: str) -> list[str]:
    return [
        name
        for name in source.values
        if name.startswith("deployment.num_") and name.endswith(f"_{unit}") and name not in _SIZES
    ]


def _algorithm(source: Settings) -> str:
    kind = source.text("orchestrator.algo.type") + source.text("trainer.loss.type")
    return "opd" if any(word in kind for word in ("distill", "opd", "opsd")) else "grpo"


def _group(source: Settings) -> int | None:
    """Samples of a prompt, under either of the two names that the versions have for it."""
    return source.integer("orchestrator.group_size", "orchestrator.rollouts_per_example", default=1)


def _settings(source: Settings) -> dict[str, Any]:
    found = mapped(source, _TABLE, _DEFAULTS)
    batch = source.integer("orchestrator.batch_size")
    group = _group(source)
    if group and (prompts := quotient(batch, group)):
        found |= {"train.prompts_per_step": prompts, "train.samples_per_prompt": group}
    if source.flag("trainer.model.optim_cpu_offload") or source.flag("trainer.model.full_offload"):
        found["roles.learner.offload"] = "optimizer"
    if source.text("slurm.time").count(":") != 2:
        found.pop("slurm.time", None)
    whole = found["lengths.pack"]  # rows of so many tokens pass one by one, each with its prompt and response
    if found.get("lengths.response", whole) < whole:
        found["lengths.prompt"] = whole - found["lengths.response"]
    else:
        found |= {"lengths.prompt": whole // 2, "lengths.response": whole - whole // 2}
    return found


def _bounds_responses(source: Settings) -> bool:
    """Whether responses are bound to less than what prompt and response take together."""
    response = source.integer(*_RESPONSES)
    whole = source.integer("seq_len", "orchestrator.seq_len", default=2048)
    return response is not None and (whole is None or response < whole)


def _unsure(source: Settings) -> tuple[str, ...]:
    """What a layout's words do not tell of the trainer's memory and of how prompts and responses share a row."""
    keys = [] if _bounds_responses(source) else ["lengths.prompt", "lengths.response"]
    if any((source.integer(f"trainer.model.{cut}", default=1) or 1) > 1 for cut in ("ep", "tp", "dp_replicate")):
        keys.append("roles.learner")
    if _group(source) == 1 and source.text("orchestrator.algo.type", default="grpo") != "grpo":
        keys.append("train.samples_per_prompt")  # an advantage that compares with more than the siblings
    if source.text("deployment.type") == "multi_node" and not source.has(*_ENGINE_SIZES):
        keys.append("roles.rollout")  # over several nodes an engine may span them by other ways than its size
    if not source.has("trainer.model.optim_cpu_offload", "trainer.model.full_offload"):
        keys.append("roles.learner.offload")
    return tuple(keys)
