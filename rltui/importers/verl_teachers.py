"""verl's teachers and reward models: pools that it adds on top of the trainer's, or none of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.importers.facts import Teacher
from rltui.importers.values import product

if TYPE_CHECKING:
    from rltui.importers.arguments import Settings


def teacher(source: Settings) -> Teacher | None:
    """The teacher's pool, which verl adds on top of the trainer's."""
    if source.flag("distillation.enabled") is False:
        return None
    names = [name for name in source.values if name.startswith("distillation.teacher_model")]
    models = [name for name in names if name.endswith("model_path")]
    sizes = [name for name in names if name.endswith("tensor_model_parallel_size")]
    return Teacher(
        model=source.text(models[0]) if models else "",
        gpus=_pool(source),
        tensor_parallel=source.integer(sizes[0]) if len({source.integer(name) for name in sizes}) == 1 else None,
    )


def _pool(source: Settings) -> int | None:
    """GPUs of the teacher; 0 where it sits on the trainer's, as it did when it had no pool of its own."""
    elder = "distillation.teacher_model"
    if source.has(f"{elder}.enable_resource_pool"):
        apart = source.flag(f"{elder}.enable_resource_pool")
        nodes, per_node = source.integer(f"{elder}.nnodes", default=1), source.integer(f"{elder}.n_gpus_per_node")
        return 0 if apart is False else product(nodes, per_node) if apart else None
    return product(*machine(source))


def machine(source: Settings) -> tuple[int | None, int | None]:
    """Nodes and GPUs a node of the teacher's own pool."""
    if not source.has("distillation.nnodes", "distillation.n_gpus_per_node"):
        return None, None
    return source.integer("distillation.nnodes", default=1), source.integer("distillation.n_gpus_per_node", default=8)


def reward_pool(source: Settings) -> int | None:
    """GPUs of a reward model with a pool of its own."""
    gpus: int | None = 0
    for prefix in ("reward_model", "reward.reward_model", "reward"):
        enabled = source.flag(f"{prefix}.enable_resource_pool")
        if enabled is False:
            continue
        nodes = source.integer(f"{prefix}.nnodes")
        per_node = source.integer(f"{prefix}.n_gpus_per_node")
        gpus = None if enabled is None else product(nodes, per_node)
    return gpus
