"""Commands that name a configuration file.

They are NeMo-RL's and AReaL's ``--config FILE.yaml``, ROLL's and RLinf's ``--config_path FOLDER --config_name NAME``
and prime-rl's ``rl @ FILE.toml`` (``prime_rl_commands.py``). The file is read where it lies beside the script or in a
folder above it; what the command sets goes over it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from rltui.importers import areal, nemo_rl, prime_rl_commands, rlinf, roll, trinity
from rltui.importers.arguments import Settings, from_flags
from rltui.importers.config import (
    interpolated,
    merged,
    nested,
    plain_value,
    read_yaml,
    with_defaults,
    with_hydra_defaults,
)
from rltui.importers.facts import Facts, not_beside, without_config
from rltui.importers.source import one_beside, read_source
from rltui.importers.values import HOLE, HOLES

if TYPE_CHECKING:
    from pathlib import Path

    from rltui.importers.script import Script

_PRIME = frozenset({"rl", "sft"})
_NEMO = re.compile(r"run_(?:vlm_)?(grpo|dpo|sft|ppo|rm|distillation|gdpo|mopd|opd)\w*\.py\Z")
_ROLL = re.compile(r"start_\w+_pipeline\.py\Z")
_DEFAULTS = {
    "grpo.py": "grpo_math_1B", "vlm_grpo.py": "vlm_grpo_3B", "ppo.py": "ppo_math_1B", "dpo.py": "dpo", "sft.py": "sft",
    "rm.py": "rm", "distillation.py": "distillation_math",
}  # fmt: skip
_OVERRIDE = re.compile(r"(~|\+{0,2})([A-Za-z_][\w.]*)(?:=(.*))?\Z", re.DOTALL)
_OTHERS = ("grpo_fast", "verl", "openrlhf")


def from_script(script: Script) -> list[Facts]:
    """What each training needs that the script starts with a configuration file."""
    found = [facts for command in script.commands if (facts := _one(script, list(command.words)))]
    found = found or prime_rl_commands.from_parts(script)
    return [_with_machine(facts, script) for facts in found]


def _one(script: Script, words: list[str]) -> Facts | None:
    names = [word.rsplit("/", 1)[-1] for word in words]
    if "@" in words:
        at = next((index for index, name in enumerate(names[: words.index("@")]) if name in _PRIME), None)
        return None if at is None else prime_rl_commands.from_words(script.path, words[at + 1 :])
    entry = next((index for index, name in enumerate(names) if name.endswith(".py") or name.startswith("areal.")), None)
    if "trinity" in names and "run" in names:
        return _trinity(script.path, words)
    if entry is None or any(other in words[entry] for other in _OTHERS):
        return None
    by_name = from_flags(words[entry + 1 :])
    if by_name.has("config_name") and by_name.has("config_path"):
        return _by_name(script.path, words[entry:], by_name)
    return _yaml(script.path, words[entry:], names[entry])


def _by_name(script: Path, words: Sequence[str], flags: Settings) -> Facts | None:
    """ROLL and RLinf: the folder is meant from that of the program; scripts make it of their own (``dirname $0``)."""
    name, folder = flags.file("config_name"), flags.file("config_path")
    file = name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
    beside_program = f"{words[0].rpartition('/')[0]}/{folder}/{file}".lstrip("/")
    above = folder.rpartition(HOLE)[2].strip("/")
    places = (f"{HOLE}/{above}/{file}".replace("//", "/"),) if HOLE in folder else (beside_program, f"{folder}/{file}")
    target = next((found for place in places if (found := one_beside(script, place))), None)
    if target is None:
        return without_config(roll.NAME, file) if _ROLL.fullmatch(words[0].rsplit("/", 1)[-1]) else None
    own, missing = with_hydra_defaults(read_yaml(read_source(target), str(target)), target)
    values = interpolated(_overridden(own, words[1:]))
    if rlinf.is_config(values):
        return rlinf.from_config(values, missing)
    return roll.from_config(values) if roll.is_config(values) else None


def _trinity(script: Path, words: Sequence[str]) -> Facts | None:
    """Trinity-RFT: ``trinity run --config FILE``."""
    name = _config(words)
    target = one_beside(script, name) if name else None
    if target is None:
        return without_config(trinity.NAME, name or "its configuration")
    values = interpolated(read_yaml(read_source(target), str(target)))
    return trinity.from_config(values) if trinity.is_config(values) else None


def _with_machine(facts: Facts, script: Script) -> Facts:
    """Slurm's own lines say what is asked for; the file says what is needed."""
    slurm = script.slurm
    if slurm.gpus is None:
        return facts
    return replace(facts, nodes=slurm.nodes, gpus_per_node=slurm.gpus_per_node, declared_gpus=slurm.gpus)


def _yaml(script: Path, words: list[str], program: str) -> Facts | None:
    """NeMo-RL and AReaL: ``program.py --config FILE key=value …``."""
    is_nemo = _NEMO.search(program)
    name = _config(words) or (_default(words[0]) if is_nemo else None)
    if name is None:
        return without_config(nemo_rl.NAME, "its default configuration") if is_nemo else None
    target = one_beside(script, name)
    if target is None:
        return without_config(nemo_rl.NAME, name) if is_nemo else _overrides_alone(words, name)
    own = read_yaml(read_source(target), str(target))
    notes = (
        ("some words of the command come from elsewhere and are not known",)
        if any(word.startswith(HOLES) for word in words)
        else ()
    )
    if nemo_rl.is_recipe(own) or is_nemo:
        values, missing = with_defaults(own, target)
        facts = nemo_rl.from_config(interpolated(_overridden(values, words)), missing, target.name)
    elif areal.is_config(own):
        facts = areal.from_config(interpolated(_overridden(own, words)))
    else:
        return None
    # a word that is not known may set any key, so nothing in the file is sure enough to be called wrong
    return replace(facts, notes=(*notes, *facts.notes), source=None if notes else facts.source)


def _default(program: str) -> str | None:
    """The configuration that a program of NeMo-RL's examples reads where it is told of none."""
    name = _DEFAULTS.get(program.rsplit("/", 1)[-1].removeprefix("run_"))
    return None if name is None else f"{program.rpartition('/')[0] or '.'}/configs/{name}.yaml"


def _overrides_alone(words: Sequence[str], name: str) -> Facts | None:
    """AReaL's allocation on the command line, which wins over a file that is not there."""
    values = _overridden({}, words)
    if "allocation_mode" not in values:
        return None
    facts = areal.from_config({key: value for key, value in values.items() if key == "allocation_mode"})
    return replace(facts, algorithm="", other_gpus=None, notes=(not_beside(name), *facts.notes))


def _config(words: Sequence[str]) -> str | None:
    """The file that ``--config`` names."""
    for index, word in enumerate(words):
        if word == "--config" and index + 1 < len(words):
            return words[index + 1]
        if word.startswith("--config="):
            return word.partition("=")[2]
    return None


def _overridden(values: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """``values`` with Hydra's ``key=value``, ``+key=value`` and ``~key`` put over them."""
    for word in words:
        match = None if word.startswith("-") else _OVERRIDE.match(word)
        if match is None or (match[3] is None and match[1] != "~"):
            continue
        values = merged(values, nested(match[2].split("."), None if match[1] == "~" else plain_value(match[3])))
    return values
