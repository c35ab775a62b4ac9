"""LLaMA-Factory: ``llamafactory-cli train FILE.yaml``, which starts torchrun by variables of the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from rltui.importers.arguments import Settings, from_flags, from_mapping
from rltui.importers.config import settings_beside
from rltui.importers.facts import Facts, only_training, remarks
from rltui.importers.script import Script, named_gpus, variable_of, visible_devices
from rltui.importers.shell_run import Started
from rltui.importers.values import product, quotient, to_bool, to_int

NAME = "llama-factory"
_COMMANDS = ("llamafactory-cli", "llamafactory.cli", "lmf")


def from_script(script: Script) -> list[Facts]:
    """What each training that the script starts needs."""
    found = []
    for command in script.commands:
        names = [word.rsplit("/", 1)[-1] for word in command.words]
        entry = next((index for index, name in enumerate(names) if name in _COMMANDS), None)
        if entry is not None and names[entry + 1 : entry + 2] == ["train"]:
            found.append(_facts(script, command, list(command.words[entry + 2 :])))
    return found


def from_config(values: Mapping[str, Any]) -> Facts | None:
    """What a YAML file of its arguments says, whose GPUs the command beside it knows; None where it is none."""
    if not {"stage", "finetuning_type", "model_name_or_path"} <= values.keys():
        return None
    return _training(from_mapping(values), (None, None), None)


def _facts(script: Script, command: Started, behind: list[str]) -> Facts:
    source = _settings(script, behind)
    nodes, trainer = _processes(command)
    per_node = named_gpus(trainer, [visible_devices(command)]) if nodes == 1 else quotient(trainer, nodes)
    return _training(source, script.slurm.machine((nodes, per_node)), trainer)


def _training(source: Settings, machine: tuple[int | None, int | None], trainer: int | None) -> Facts:
    algorithm, model = f"{source.text('stage') or 'a training'} of LLaMA-Factory", source.text("model_name_or_path")
    return replace(only_training(NAME, algorithm, model, machine, trainer, remarks(source)), source=source)


def _settings(script: Script, behind: list[str]) -> Settings:
    """The settings of the file that the command names, if it is there, or its flags."""
    if not behind or not behind[0].endswith((".yaml", ".yml")):
        return from_flags(behind)
    return settings_beside(script.path, behind[0]) or Settings({})


def _processes(command: Started) -> tuple[int | None, int | None]:
    """Nodes and GPUs that train: every visible GPU of each node, unless the number of processes is set."""
    visible = visible_devices(command)
    count = None if visible is None else len(visible)
    forced = to_bool(variable_of(command, "FORCE_TORCHRUN") or "0") is True
    if count == 1 and not forced:
        return 1, 1
    given, nodes = variable_of(command, "NPROC_PER_NODE"), variable_of(command, "NNODES")
    number = 1 if nodes is None else to_int(nodes)
    return number, product(number, count if given is None else to_int(given))
