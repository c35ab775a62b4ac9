"""verl's programs that are no RL: fine-tuning, and generation alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.importers.facts import Facts, only_training, remarks
from rltui.importers.values import product, quotient

if TYPE_CHECKING:
    from rltui.importers.arguments import Settings
    from rltui.importers.script import Script


def supervised(script: Script, source: Settings, launcher: Settings) -> Facts:
    """Fine-tuning under torchrun: every process trains, nothing generates."""
    nodes = launcher.integer("nnodes", "num_machines", default=source.integer("trainer.nnodes", default=1))
    per_node = launcher.integer("nproc_per_node", default=source.integer("trainer.n_gpus_per_node"))
    if launcher.has("num_processes"):  # accelerate counts its processes over all machines
        per_node = quotient(launcher.integer("num_processes"), nodes)
    asked = product(nodes, per_node)
    model = source.text("model.path", "model.partial_pretrain")
    return only_training("verl", "sft", model, (nodes, per_node), asked, remarks(source), script.slurm.gpus)


def generation(source: Settings) -> Facts:
    """Generation only: there are engines and no trainer."""
    nodes = source.integer("trainer.nnodes", default=1)
    per_node = source.integer("trainer.n_gpus_per_node", default=8)
    asked = product(nodes, per_node)
    size = source.integer("actor_rollout_ref.rollout.tensor_model_parallel_size", "rollout.tensor_model_parallel_size")
    return Facts(
        dialect="verl",
        algorithm="generation",
        model=source.text("actor_rollout_ref.model.path", "model.path"),
        colocated=True,
        nodes=nodes,
        gpus_per_node=per_node,
        declared_gpus=asked,
        trainer_gpus=asked,
        rollout_gpus=asked,
        rollout_tp=size,
        rollout_engines=quotient(asked, size),
        notes=("generation only: the same GPUs are counted for trainer and engines", *remarks(source)),
    )
