"""Tasks of a scheduler in YAML: a shell script or a command, with nodes, cards and variables beside it.

SkyPilot's ``run:``, the containers of Kubernetes, Beaker and Docker Compose, and the ``entrypoint:`` of jobs on Ray.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from msgspec import Struct

from rltui.importers.values import HOLE, to_int, total

_ACCELERATORS = re.compile(r"([A-Za-z][\w-]*)(?::(\d{1,6}))?")


class Task(Struct, frozen=True):
    """A task: its script, the variables that the script finds set, and what it asks for; None where it does not say."""

    run: str
    environ: dict[str, str]
    nodes: int | None
    gpus_per_node: int | None
    gpu: str


def task_of(values: Mapping[str, Any]) -> Task | None:
    """The task that a YAML file describes, or None; None as well where its containers run different things."""
    return _skypilot(values) or _of_containers(values) or _on_ray(values)


def _skypilot(values: Mapping[str, Any]) -> Task | None:
    run, resources = values.get("run"), values.get("resources")
    if not isinstance(run, str) or not ("setup" in values or "num_nodes" in values or isinstance(resources, dict)):
        return None
    nodes = to_int(values.get("num_nodes", 1))
    gpu, per_node = _accelerators(resources if isinstance(resources, dict) else {})
    counted = {"SKYPILOT_NUM_NODES": nodes, "SKYPILOT_NUM_GPUS_PER_NODE": per_node}
    environ = {name: str(number) for name, number in counted.items() if number is not None}
    environ |= dict.fromkeys(("SKYPILOT_NODE_RANK", "SKYPILOT_NODE_IPS"), HOLE)
    for section in ("envs", "secrets"):
        environ |= _named(values.get(section))
    return Task(run, environ, nodes, per_node, gpu)


def _on_ray(values: Mapping[str, Any]) -> Task | None:
    """A job that Ray or Anyscale submits; KubeRay keeps it in ``spec``."""
    spec = values.get("spec")
    entry = (spec if isinstance(spec, dict) else values).get("entrypoint")
    return Task(entry, _named(values.get("env_vars")), None, None, "") if isinstance(entry, str) else None


def _of_containers(values: Mapping[str, Any]) -> Task | None:
    """The one command that all containers run which run something; nodes are their replicas."""
    if not any(key in values for key in ("spec", "tasks", "services")):
        return None
    found = list(_containers(values, 1))
    if not found or len({task.run for task in found}) != 1:
        return None
    counts = {task.gpus_per_node for task in found}
    nodes = total(*(task.nodes for task in found))
    return Task(found[0].run, found[0].environ, nodes, counts.pop() if len(counts) == 1 else None, "")


def _containers(place: object, replicas: int | None) -> Iterator[Task]:
    """A task for every mapping below ``place`` that says what a container runs."""
    for inner in place if isinstance(place, list) else ():
        yield from _containers(inner, replicas)
    if not isinstance(place, dict):
        return
    replicas = next((to_int(place[key]) for key in ("replicas", "numNodes") if key in place), replicas)
    words = [*_words(place.get("command")), *_words(place.get("args")), *_words(place.get("arguments"))]
    if words and ("image" in place or "resources" in place):
        variables = _named(place.get("env") or place.get("envVars") or place.get("environment"))
        yield Task(_script_of(words), variables, replicas, _limit(place.get("resources")), "")
        return
    for inner in place.values():
        yield from _containers(inner, replicas)


def _words(said: object) -> list[str]:
    return [str(word) for word in said] if isinstance(said, list) else shlex.split(said) if _quoted(said) else []


def _quoted(said: object) -> TypeGuard[str]:
    """Whether it is text whose quotes close."""
    try:
        return isinstance(said, str) and bool(shlex.split(said))
    except ValueError:
        return False


def _script_of(words: list[str]) -> str:
    """What a shell is given to run, or the command itself."""
    option = next((index for index, word in enumerate(words[:4]) if re.fullmatch(r"-[a-z]*c", word)), 0)
    shell = words[0].rsplit("/", 1)[-1] in ("sh", "bash")
    return words[option + 1] if shell and 0 < option < len(words) - 1 else shlex.join(words)


def _limit(resources: object) -> int | None:
    """GPUs of a container: ``nvidia.com/gpu`` of Kubernetes, ``gpuCount`` of Beaker."""
    asked = resources if isinstance(resources, dict) else {}
    for section in (asked, asked.get("limits"), asked.get("requests")):
        for key in ("nvidia.com/gpu", "amd.com/gpu", "gpuCount"):
            if isinstance(section, dict) and key in section:
                return to_int(section[key])
    return None


def _named(given: object) -> dict[str, str]:
    """Variables as a mapping, or as a list of names and values; those that come from elsewhere are open."""
    if isinstance(given, dict):
        return {str(name): HOLE if value is None else str(value) for name, value in given.items()}
    pairs = given if isinstance(given, list) else []
    return {str(one["name"]): str(one.get("value", HOLE)) for one in pairs if isinstance(one, dict) and "name" in one}


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
