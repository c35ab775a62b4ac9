"""What configurations of accelerate and DeepSpeed say of the trained states: how they are divided, where they live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rltui.errors import UsageError
from rltui.importers.config import one_beside, read_yaml
from rltui.importers.source import read_source
from rltui.importers.values import to_bool, to_int

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rltui.importers.arguments import Settings
    from rltui.importers.script import Script

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
    names = (source.text("deepspeed"), machine.text("deepspeed_config_file"), stages.get("deepspeed_config_file"))
    own = next((_zero(script, str(name)) for name in names if name), None)
    if own is not None:
        return own
    if stages:
        return _learner(to_int(str(stages.get("zero_stage", ""))), stages, "{}_device")
    return _fsdp(_section(config, "fsdp_config")) if kind == "FSDP" else {}


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


def _fsdp(values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    strategy = str(values.get("fsdp_sharding_strategy") or values.get("fsdp_reshard_after_forward") or "").upper()
    if strategy in (*_FULL, "TRUE"):
        found["roles.learner.zero_stage"] = 3
    elif strategy in (*_GRADIENTS, "FALSE"):
        found["roles.learner.zero_stage"] = 2
    if to_bool(str(values.get("fsdp_offload_params", ""))):
        found["roles.learner.offload"] = "all"
    if to_bool(str(values.get("fsdp_activation_checkpointing", ""))):
        found["roles.learner.gradient_checkpointing"] = True
    return found
