"""Programs of TRL's GRPO, unsloth's among them: the arguments of ``GRPOConfig(…)``, read from the syntax tree.

The file is parsed, never imported or run. A program does not say how many processes it is started in; one of unsloth
is taken to run as it stands, in one process on one GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rltui.importers import trl
from rltui.importers.facts import Facts
from rltui.importers.python_values import known
from rltui.importers.trl_arguments import read_program
from rltui.importers.values import to_bool, to_int

_DEFAULTS: Mapping[str, Any] = {"num_generations": 8, "per_device_train_batch_size": 8}
"""What TRL takes where a program is silent, of what tells that it generates."""


def from_python(text: str, path: Path) -> list[Facts]:
    """What each ``GRPOConfig`` of a program says.

    Raises:
        UsageError: Not Python.
    """
    program = read_program(text, path)
    found = []
    for config in program.configs:
        values = {**_DEFAULTS, **config, "model_name_or_path": program.model}
        facts = trl.from_config({name: value for name, value in values.items() if value is not None})
        assert facts is not None  # it has what from_config asks for
        facts = replace(facts, algorithm="grpo", program=path.name)
        found.append(_apart(facts, values) if program.loading is None else _of_unsloth(facts, values, program.loading))
    return found


def _of_unsloth(facts: Facts, values: Mapping[str, Any], loading: Mapping[str, Any]) -> Facts:
    """One process, whose vLLM shares its GPU where ``fast_inference`` is on; its batch is made to hold whole groups."""
    uses = to_bool(loading.get("fast_inference", values.get("use_vllm", False)))
    rollout = None if uses is None else int(uses)
    rows, group = to_int(values["per_device_train_batch_size"]), to_int(values["num_generations"])
    steps = to_int(values.get("gradient_accumulation_steps", 1))
    settings = dict(facts.settings)
    if rows and group and steps:
        settings["train.prompts_per_step"] = max(1, (rows if rows % group == 0 else group) * steps // group)
    if (share := loading.get("gpu_memory_utilization")) is not None and known(share):
        settings["roles.rollout.memory_utilization"] = share
    if uses is False:
        settings["roles.rollout.engine"] = "hf"
    return replace(
        facts, colocated=True, nodes=1, gpus_per_node=1, declared_gpus=1, trainer_gpus=1, rollout_gpus=rollout,
        rollout_tp=1 if uses else None, rollout_engines=1 if uses else None, settings=settings,
        unsure=("roles.learner",),  # its own kernels and quantization
        notes=("a program of unsloth: one process on one GPU is assumed", *facts.notes),
    )  # fmt: skip


def _apart(facts: Facts, values: Mapping[str, Any]) -> Facts:
    """A program whose processes its launcher counts."""
    uses = to_bool(values.get("use_vllm", False))
    shares = values.get("vllm_mode") == "colocate"
    size = to_int(values.get("vllm_tensor_parallel_size", 1)) if uses and shares else None
    return replace(
        facts, colocated=True if uses is False or (uses and shares) else None,
        rollout_gpus=0 if uses is False else None, rollout_tp=size,
    )  # fmt: skip
