"""LLaMA-Factory: ``llamafactory-cli train FILE.yaml``, which starts torchrun by variables of the environment.

A launcher may also start its program itself: ``deepspeed src/train.py``, ``train_bash.py`` until 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from rltui.importers.accelerate import processes, read_config
from rltui.importers.arguments import Settings, from_flags, from_mapping, from_overrides
from rltui.importers.config import settings_beside
from rltui.importers.facts import Facts, only_training, remarks
from rltui.importers.script import Script, named_gpus, variable_of, visible_devices
from rltui.importers.shell_run import Started
from rltui.importers.values import product, quotient, to_bool, to_int

NAME = "llama-factory"
_COMMANDS = ("llamafactory-cli", "llamafactory.cli", "lmf")
_TRAIN = ("train", "sft", "dpo", "rm")
"""What its command is told to do; all but the first with ``USE_V1=1`` only."""

_PROGRAMS = ("train.py", "train_bash.py", "launcher.py", "llamafactory.launcher")
_OWN = frozenset({"stage", "finetuning_type"})
_PLAIN = frozenset({"python", "python3"})
_FORCES = ("FORCE_TORCHRUN", "USE_MCA", "USE_MEGATRON_BRIDGE")


def from_script(script: Script) -> list[Facts]:
    """What each training that the script starts needs."""
    return [facts for command in script.commands if (facts := _of_command(script, command))]


def _of_command(script: Script, command: Started) -> Facts | None:
    words = list(command.words)
    names = [word.rsplit("/", 1)[-1] for word in words]
    entry = next((index for index, name in enumerate(names) if name in _COMMANDS), None)
    if entry is not None:
        trains = names[entry + 1 : entry + 2] and names[entry + 1] in _TRAIN
        return _facts(script, command, words[entry + 2 :]) if trains else None
    entry = next((index for index, name in enumerate(names) if name in _PROGRAMS), None)
    if entry is None:
        return None
    source = _settings(script, words[entry + 1 :])
    if names[entry] != "train_bash.py" and not source.values.keys() >= _OWN:
        return None
    machine = from_flags(words[:entry])
    alone = entry == 0 or names[entry - 1] in _PLAIN
    trainer = 1 if alone else processes(script, command, machine, read_config(script, machine))
    nodes = machine.integer("num_machines", "nnodes", "num_nodes", default=1)
    return _on_machine(script, command, source, nodes, trainer)


def from_config(values: Mapping[str, Any]) -> Facts | None:
    """What a YAML file of its arguments says, whose GPUs the command beside it knows; None where it is none."""
    if not {"stage", "finetuning_type", "model_name_or_path"} <= values.keys():
        return None
    return _training(from_mapping(values), (None, None), None)


def _facts(script: Script, command: Started, behind: list[str]) -> Facts:
    source = _settings(script, behind)
    if _is_set(command, "USE_RAY") and not _is_set(command, *_FORCES):
        each = source.integer("resources_per_worker.GPU", default=1)
        return _on_machine(script, command, source, 1, product(source.integer("ray_num_workers", default=1), each))
    return _on_machine(script, command, source, *_processes(command))


def _on_machine(script: Script, command: Started, source: Settings, nodes: int | None, trainer: int | None) -> Facts:
    per_node = named_gpus(trainer, [visible_devices(command)]) if nodes == 1 else quotient(trainer, nodes)
    return _training(source, script.slurm.machine((nodes, per_node)), trainer)


def _training(source: Settings, machine: tuple[int | None, int | None], trainer: int | None) -> Facts:
    algorithm, model = f"{source.text('stage') or 'a training'} of LLaMA-Factory", source.text("model_name_or_path")
    return replace(only_training(NAME, algorithm, model, machine, trainer, remarks(source)), source=source)


def _settings(script: Script, behind: list[str]) -> Settings:
    """The settings of the file that the command names, if it is there, under its ``key=value``; or its flags."""
    if not behind or not behind[0].endswith((".yaml", ".yml", ".json")):
        return from_flags(behind)
    file = settings_beside(script.path, behind[0])
    given = from_overrides(behind[1:])
    return given.cut() if file is None else given.over(file.values)


def _is_set(command: Started, *names: str) -> bool:
    return any(to_bool(variable_of(command, name) or "0") is True for name in names)


def _processes(command: Started) -> tuple[int | None, int | None]:
    """Nodes and GPUs that train: every visible GPU of each node, unless the number of processes is set."""
    visible = visible_devices(command)
    count = None if visible is None else len(visible)
    forced = _is_set(command, *_FORCES)
    if not forced and (count == 1 or _is_set(command, "USE_KT")):
        return 1, 1
    given, nodes = variable_of(command, "NPROC_PER_NODE"), variable_of(command, "NNODES")
    number = 1 if nodes is None else to_int(nodes)
    return number, product(number, count if given is None else to_int(given))
