"""prime-rl's commands: ``rl`` for a whole run, or ``trainer``, ``orchestrator`` and ``inference`` each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rltui.importers import prime_rl
from rltui.importers.arguments import from_flags
from rltui.importers.config import merged, nested, plain_value, read_toml, toml_chain
from rltui.importers.facts import Facts, without_config
from rltui.importers.script import Script, visible_gpus
from rltui.importers.shell_run import Started
from rltui.importers.source import one_beside, read_source
from rltui.importers.values import HOLE, product, to_int

_PARTS = {
    "trainer": "trainer", "orchestrator": "orchestrator", "inference": "inference", "rl/train.py": "trainer",
    "orchestrator/orchestrator.py": "orchestrator", "inference/server.py": "inference",
    "prime_rl.trainer.rl.train": "trainer", "prime_rl.orchestrator.orchestrator": "orchestrator",
    "prime_rl.inference.server": "inference",
}  # fmt: skip
"""Its programs, each with the section of a whole run's file that it reads."""


def from_words(script: Path, words: list[str]) -> Facts:
    """What ``rl @ a.toml @ b.toml --trainer @ c.toml --key.sub-key value`` needs; the last of several wins."""
    missing: list[str] = []
    values = _values(script, words, missing)
    return without_config(prime_rl.NAME, ", ".join(missing)) if missing else prime_rl.from_config(values)


def from_parts(script: Script) -> list[Facts]:
    """What a run needs whose parts the script starts one by one; nothing where no trainer is among them.

    The trainer takes as many GPUs as torchrun has processes, the engines those that they see, or else of all copies.
    """
    missing: list[str] = []
    values: dict[str, Any] = {}
    gpus: dict[str, int | None] = {}
    for command in script.commands:
        at, part = _part(command.words)
        if part and part not in values:
            values[part] = _values(script.path, list(command.words[at + 1 :]), missing)
            gpus[part] = _gpus(command, at, values[part], part)
    if "trainer" not in values or not {"orchestrator", "inference"} & values.keys():
        return []
    if missing:
        return [without_config(prime_rl.NAME, ", ".join(missing))]
    counts = {"num_train_gpus": gpus["trainer"]} | (
        {"num_infer_gpus": gpus["inference"]} if "inference" in gpus else {}
    )
    deployment = {name: HOLE if count is None else count for name, count in counts.items()}
    return [prime_rl.from_config({**values, "deployment": deployment})]


def _part(words: Sequence[str]) -> tuple[int, str]:
    """Where a command names one of the parts, and which; only with a file or settings behind it."""
    for index, word in enumerate(words[:-1]):
        part = next((part for end, part in _PARTS.items() if word == end or word.endswith(f"/{end}")), "")
        if part and (words[index + 1] == "@" or words[index + 1].startswith("--")):
            return index, part
    return 0, ""


def _gpus(command: Started, at: int, values: dict[str, Any], part: str) -> int | None:
    visible = visible_gpus(command)
    if part == "inference":
        parallel = values.get("parallel") or {}
        ways = [to_int(str(parallel.get(way, 1))) for way in ("tp", "dp")] if isinstance(parallel, dict) else [None]
        return visible or product(*ways)
    head = from_flags(command.words[:at])
    launched = product(head.integer("nproc_per_node", default=1), head.integer("nnodes", default=1))
    return launched if head.has("nproc_per_node") else visible or 1


def _values(script: Path, words: list[str], missing: list[str]) -> dict[str, Any]:
    """What the files and options of a command set together."""
    values: dict[str, Any] = {}
    over: dict[str, Any] = {}
    place: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "@" and at < len(words):
            table = _toml(script, words[at], missing)
            values = merged(values, nested(place, table) if place else table)
            at += 1
            place = []
        elif word.startswith("--"):
            key, equals, value = word[2:].partition("=")
            place = key.replace("-", "_").split(".")
            follows = words[at] if at < len(words) else "--"
            if not equals and follows == "@":
                continue
            taken = not equals and not follows.startswith("--")
            over = merged(over, nested(place, plain_value(value if equals else follows if taken else "true")))
            at += taken
            place = []
    return merged(values, over)


def _toml(script: Path, name: str, missing: list[str]) -> dict[str, Any]:
    target = one_beside(script, name)
    if target is None:
        missing.append(name)
        return {}
    values, lost = toml_chain(read_toml(read_source(target), str(target)), target)
    missing.extend(lost)
    return values
