"""accelerate's configuration and DeepSpeed's: how many processes train, and how their states are divided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rltui.errors import UsageError
from rltui.importers.arguments import Settings
from rltui.importers.config import read_yaml
from rltui.importers.script import Script, included_gpus, visible_gpus
from rltui.importers.shell_run import Started
from rltui.importers.source import one_beside, read_source
from rltui.importers.values import product, to_bool, to_int

_SHARDED = {f"zero{stage}": stage for stage in (1, 2, 3)}
_LAUNCHERS_OF_MANY = ("multi_gpu", "use_deepspeed", "use_fsdp", "use_megatron_lm")


def read_config(script: Script, machine: Settings) -> Settings:
    """The accelerate configuration that flags name, if it is there or is one that TRL brings along (``zero3``)."""
    name = machine.file("config_file", "accelerate_config")
    target = one_beside(script.path, name)
    values = read_yaml(read_source(target), str(target)) if target else _of_trl(name)
    return Settings({key: [value] for key, value in values.items()})


def _of_trl(name: str) -> dict[str, Any]:
    """The configurations of TRL's own that its command takes by name; each is for one machine of 8 GPUs."""
    kinds: dict[str, dict[str, Any]] = {
        **{
            word: {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": stage}}
            for word, stage in _SHARDED.items()
        },
        **{
            word: {"distributed_type": "FSDP", "fsdp_config": {"fsdp_reshard_after_forward": True}}
            for word in ("fsdp1", "fsdp2")
        },
        "multi_gpu": {"distributed_type": "MULTI_GPU"},
        "single_gpu": {"distributed_type": "NO"},
    }
    return {**kinds[name], "num_processes": 8, "num_machines": 1} if name in kinds else {}


def processes(script: Script, command: Started, machine: Settings, config: Settings) -> int | None:
    """Training processes in all: accelerate counts them over all machines, torchrun for each."""
    if machine.has("nproc_per_node", "nproc_per_gpu"):
        per_node = machine.integer("nproc_per_node")
        if per_node is None and machine.text("nproc_per_node") in ("gpu", "auto"):
            per_node = visible_gpus(command) or script.slurm.gpus_per_node
        return product(per_node, to_int(machine.text("nnodes", default="1").split(":")[-1]))
    if str(_first(config, "distributed_type")).upper() in ("NO", "FALSE") and not machine.has(*_LAUNCHERS_OF_MANY):
        return 1  # however many it or the command counts: accelerate starts the program once
    if machine.has("num_processes"):
        return machine.integer("num_processes")
    if machine.has("num_gpus"):
        return product(machine.integer("num_gpus"), machine.integer("num_nodes", default=1))
    if machine.has("include"):
        return included_gpus(machine.text("include"))
    if machine.has("config_file", "accelerate_config"):
        return config.integer("num_processes")
    return visible_gpus(command)


_FULL, _GRADIENTS = ("FULL_SHARD", "HYBRID_SHARD", "1", "4"), ("SHARD_GRAD_OP", "HYBRID_SHARD_ZERO2", "2", "5")
"""FSDP's strategies that divide weights too, and those that divide gradients and optimizer, by name and number."""


def trained_states(script: Script, config: Settings, machine: Settings, source: Settings) -> dict[str, Any]:
    """Settings of the learner, as far as the files are there.

    Args:
        script: The script, beside which files lie.
        config: accelerate's configuration.
        machine: Flags of the launcher.
        source: Arguments of the training; ``--deepspeed`` names DeepSpeed's own configuration.
    """
    kind = str(_first(config, "distributed_type")).upper()
    stages = _section(config, "deepspeed_config") if kind == "DEEPSPEED" else {}
    flags = {name: _first(machine, name) for name in ("zero_stage", "offload_optimizer_device", "offload_param_device")}
    stages = {**stages, **{name: value for name, value in flags.items() if value}}
    names = (source.file("deepspeed"), machine.file("deepspeed_config_file"), stages.get("deepspeed_config_file"))
    own = next((_zero(script, str(name)) for name in names if name), None)
    if own is not None:
        return own
    if stages:
        return _learner(to_int(str(stages.get("zero_stage", ""))), stages, "{}_device")
    if kind == "FSDP" or machine.flag("use_fsdp"):
        own = {name: _first(machine, name) for name in machine.values if name.startswith("fsdp_")}
        return fsdp_states({**_section(config, "fsdp_config"), **own})
    return fsdp_of_transformers(source)


def fsdp_of_transformers(source: Settings) -> dict[str, Any]:
    """What ``--fsdp "full_shard auto_wrap offload"`` of transformers' own arguments says."""
    words = " ".join(str(word) for word in source.words("fsdp")).split()
    stage = 3 if {"full_shard", "hybrid_shard"} & {*words} else 2 if "shard_grad_op" in words else None
    found: dict[str, Any] = {"roles.learner.zero_stage": stage} if stage else {}
    return found | ({"roles.learner.offload": "all"} if "offload" in words else {})


def _first(settings: Settings, name: str) -> Any:
    return next(iter(settings.values.get(name, ())), "")


def _section(settings: Settings, name: str) -> Mapping[str, Any]:
    found = _first(settings, name)
    return found if isinstance(found, dict) else {}


def _zero(script: Script, name: str) -> dict[str, Any] | None:
    """What DeepSpeed's own file says; nothing where it is not there, None where the name is that of no file."""
    if not name.endswith(".json"):
        return None
    target = one_beside(script.path, name)
    try:
        values = read_yaml(read_source(target), name) if target else {}  # JSON is YAML
    except UsageError:
        values = {}
    zero = values.get("zero_optimization")
    if not isinstance(zero, dict):
        return {}
    devices = {key: part.get("device") for key, part in zero.items() if isinstance(part, dict)}
    return _learner(to_int(str(zero.get("stage", ""))), devices, "{}")


def _learner(stage: int | None, devices: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"roles.learner.zero_stage": stage} if stage in (0, 1, 2, 3) else {}
    for part, word in (("offload_optimizer", "optimizer"), ("offload_param", "all")):
        if devices.get(name.format(part)) in ("cpu", "nvme"):
            found["roles.learner.offload"] = word
    return found


def fsdp_states(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the learner that FSDP's own say, under accelerate's names (``fsdp_sharding_strategy``)."""
    found: dict[str, Any] = {}
    strategy = str(values.get("fsdp_sharding_strategy") or values.get("fsdp_reshard_after_forward", "")).upper()
    if strategy in (*_FULL, "TRUE"):
        found["roles.learner.zero_stage"] = 3
    elif strategy in (*_GRADIENTS, "FALSE"):
        found["roles.learner.zero_stage"] = 2
    if to_bool(str(values.get("fsdp_offload_params", ""))):
        found["roles.learner.offload"] = "all"
    if to_bool(str(values.get("fsdp_activation_checkpointing", ""))):
        found["roles.learner.gradient_checkpointing"] = True
    return found
