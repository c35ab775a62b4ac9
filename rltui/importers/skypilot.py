"""SkyPilot's tasks: YAML whose ``run:`` is a shell script, with nodes, cards and variables beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from rltui.importers.values import HOLE, to_int

_ACCELERATORS = re.compile(r"([A-Za-z][\w-]*)(?::(\d{1,6}))?")


class Task(Struct, frozen=True):
    """A task: its script, the variables that the script finds set, and what it asks for; None where it does not say."""

    run: str
    environ: dict[str, str]
    nodes: int | None
    gpus_per_node: int | None
    gpu: str


def task_of(values: Mapping[str, Any]) -> Task | None:
    """The task that a YAML file describes, or None."""
    run, resources = values.get("run"), values.get("resources")
    if not isinstance(run, str) or not ("setup" in values or "num_nodes" in values or isinstance(resources, dict)):
        return None
    nodes = to_int(values.get("num_nodes", 1))
    gpu, per_node = _accelerators(resources if isinstance(resources, dict) else {})
    counted = {"SKYPILOT_NUM_NODES": nodes, "SKYPILOT_NUM_GPUS_PER_NODE": per_node}
    environ = {name: str(number) for name, number in counted.items() if number is not None}
    environ |= dict.fromkeys(("SKYPILOT_NODE_RANK", "SKYPILOT_NODE_IPS"), HOLE)
    for section in ("envs", "secrets"):
        given = values.get(section)
        named = given if isinstance(given, dict) else {}
        environ |= {str(name): HOLE if value is None else str(value) for name, value in named.items()}
    return Task(run, environ, nodes, per_node, gpu)


def _accelerators(resources: Mapping[str, Any]) -> tuple[str, int | None]:
    """Card and GPUs of a node in ``H100:8``, ``{H100: 8}`` or a choice of them, where all choices have as many."""
    found = _choices(resources.get("accelerators"))
    choices = resources.get("any_of")
    for choice in choices if isinstance(choices, list) else ():
        found |= _choices(choice.get("accelerators")) if isinstance(choice, dict) else set()
    counts = {count for _, count in found}
    return next(iter(found))[0] if len(found) == 1 else "", counts.pop() if len(counts) == 1 else None


def _choices(said: object) -> set[tuple[str, int]]:
    if isinstance(said, dict):
        return {(str(name), count) for name, number in said.items() if (count := to_int(number)) is not None}
    words = said if isinstance(said, list) else [said]
    matches = [_ACCELERATORS.fullmatch(word) for word in words if isinstance(word, str)]
    return {(match[1], int(match[2] or 1)) for match in matches if match}
