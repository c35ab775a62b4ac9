"""From the facts of a launch script to a layout."""

from __future__ import annotations

import re
from typing import Any

from rltui.importers.facts import SHOWS_ONLY_IN_A_RUN, Facts
from rltui.importers.values import printable
from rltui.layout.document import dump
from rltui.layout.errors import LayoutError, Problem
from rltui.layout.load import load_text
from rltui.layout.scalars import UNNAMED_GPU

ALGORITHMS = ("grpo", "ppo", "opd")
_REQUIRED: tuple[tuple[str, Any, str], ...] = (
    ("train.steps", 1000, "the script counts epochs, or does not say"),
    ("train.prompts_per_step", 64, "the script does not say"),
    ("train.samples_per_prompt", 8, "the script does not say"),
    ("train.learning_rate", 1e-6, "the script does not say"),
    ("lengths.prompt", 1024, "the script does not say"),
    ("lengths.response", 1024, "the script does not say"),
    ("roles.rollout.memory_utilization", 0.9, "the script does not say"),
    ("roles.learner.zero_stage", 2, "the script does not say"),
    ("data.train", "unknown", "the script does not say in words that are known"),
)
_SECTIONS = (
    "layout",
    "name",
    "summary",
    "algorithm",
    "hardware",
    "pools",
    "roles",
    "train",
    "lengths",
    *ALGORITHMS,
    "data",
)
_KNOBS = ("roles.learner.micro_batch", "roles.learner.gradient_checkpointing")
"""What memory turns on, and what a layout takes to be 0 or off where a script may mean something else."""
_SHARED, _CRITIC = "shared", "critic"


class Unmappable(Exception):  # noqa: N818 (a finding about the script, not a fault)
    """Why no layout can be made of a script."""


def layout_of(facts: Facts, name: str) -> tuple[dict[str, Any], list[str]]:
    """A layout as plain values, and what had to be assumed for it.

    Args:
        facts: What the script says.
        name: Where the script comes from; the layout is named after it.

    Raises:
        Unmappable: The script is no RL, or leaves its GPUs open.
    """
    if facts.algorithm not in ALGORITHMS:
        word = facts.algorithm or "its training"
        raise Unmappable(f"layout: {word} has no layout; layouts are for {', '.join(ALGORITHMS)}")
    flat: dict[str, Any] = {"layout": 1, "name": _name(name)}
    flat["summary"] = f"Imported from {printable(name[:300])} ({facts.dialect})"
    flat["algorithm"] = facts.algorithm
    assumed: list[str] = []
    _hardware(facts, flat, assumed)
    _placement(facts, flat, assumed)
    flat |= {key: value for key, value in facts.settings.items() if _belongs(key, facts)}
    for key in ("train.prompts_per_step", "train.samples_per_prompt", "lengths.prompt", "lengths.response"):
        if flat.get(key, 1) < 1:
            del flat[key]
    if not flat.get("train.learning_rate", 1):
        del flat["train.learning_rate"]  # a run that is to learn nothing, such as one that measures
    unsure = [*facts.unsure, *(key for key in _KNOBS if key not in flat and not flat.get("lengths.pack"))]
    for key, value, reason in _REQUIRED:
        if key not in flat:
            flat[key] = value
            unsure.append(key)
            assumed.append(f"{key}: {value} is assumed; {reason}")
    if facts.algorithm == "opd" and "roles.teacher.model" not in flat:
        unsure.append("roles.teacher")  # the teacher is somewhere, and a layout that leaves it out says nothing of it
    if flat.get("checkpoint.every", 0) < 0:
        flat["checkpoint.every"] = 0
    _token_budget(flat)
    _without_words(flat, unsure, assumed)
    flat["unsure"] = list(dict.fromkeys(unsure))
    flat["data.reward"] = "none" if facts.algorithm == "opd" else "math"
    assumed.append(f"data.reward: {flat['data.reward']!r} is assumed; rewards are code in other systems")
    values = _nested(flat)
    return _without_refused(values, assumed), assumed


def _token_budget(flat: dict[str, Any]) -> None:
    """A budget of tokens for a pass is one packed row; a sample that is longer has a pass of its own."""
    if not flat.get("lengths.pack"):
        return
    flat["lengths.pack"] = max(flat["lengths.pack"], flat["lengths.prompt"] + flat["lengths.response"])
    flat["roles.learner.micro_batch"] = 1
    if "roles.critic.pool" in flat:
        flat["roles.critic.micro_batch"] = 1


def _without_words(flat: dict[str, Any], unsure: list[str], assumed: list[str]) -> None:
    """What other systems do and the layout's own trainers do not."""
    # data and local models lie on the machine that the script was written for, not on this one; so do those whose
    # place a published script leaves to its reader
    unsure.extend(("data.train", "data.eval"))
    unsure.extend(key for key, value in flat.items() if key.endswith(".model") and _is_place(str(value)))
    if flat.get("system", "").startswith(("verl", "megatron in turns")):
        # which states are on the card at once is its own code's choice, and changes with its version
        unsure.extend(
            key for key in ("roles.learner.offload", "roles.critic.offload") if flat.get(key, "none") != "none"
        )
    size, per_node = flat["roles.rollout.tensor_parallel"], flat["hardware.gpus_per_node"]
    if size > per_node:
        unsure.extend(("roles.rollout", "roles.learner.gpus"))
        assumed.append(f"roles.rollout.tensor_parallel: {size} GPUs an engine, over nodes of {per_node}")
    if "roles.learner.pool" in flat and flat.pop("train.async_steps", 0):
        assumed.append("train.async_steps: left out; engines and learner share their GPUs and take turns here")
    adapters = flat.get("roles.learner.lora_rank") and "roles.reference.pool" not in flat
    if adapters and flat.pop(f"{flat['algorithm']}.kl_coefficient", 0):
        assumed.append("KL penalty: left out; its reference is the model without adapters, which a layout cannot say")
    if "data.eval" not in flat and flat.pop("data.eval_every", 0):
        assumed.append("data.eval_every: left out; the script does not say on what in words that are known")


def _is_place(model: str) -> bool:
    """Whether a model is a folder rather than a name of a hub, which has one slash at most."""
    return model[:1] in "/.~$<" or model.count("/") > 1


def _name(text: str) -> str:
    stem = text.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:64]
    return cleaned if cleaned and cleaned[0].isalnum() else "imported"


def _belongs(key: str, facts: Facts) -> bool:
    """Whether a setting is for a role and an algorithm that this layout has."""
    if key.startswith("roles.critic."):
        return facts.critic != "none"
    section = key.partition(".")[0]
    return section not in ALGORITHMS or section == facts.algorithm


def _open(facts: Facts) -> str:
    """Which settings of GPUs only a run shows, and what to say instead."""
    settings = (note.partition(":")[0] for note in facts.notes if note.endswith(SHOWS_ONLY_IN_A_RUN))
    names = [name for name in settings if "gpu" in name or "node" in name]
    named = f": {' and '.join(names[:2])} {'show' if len(names) > 1 else 'shows'} only in a run" if names else ""
    return f"{named} (--set VARIABLE=VALUE says what a variable of the script is)"


def _hardware(facts: Facts, flat: dict[str, Any], assumed: list[str]) -> None:
    nodes, per_node = facts.nodes, facts.gpus_per_node
    needed = facts.needed_gpus
    if not needed:
        raise Unmappable(f"layout: the script leaves its GPUs open, so there is no layout to check{_open(facts)}")
    if not nodes or not per_node:
        per_node = per_node or min(needed, 8)
        nodes = max(1, -(-needed // per_node))
        assumed.append(f"hardware: {nodes} × {per_node} GPUs is assumed; the script does not say which machine")
    flat["hardware.nodes"], flat["hardware.gpus_per_node"] = nodes, per_node
    asked = facts.declared_gpus
    if asked is not None and asked < min(needed, nodes * per_node):
        assumed.append(f"hardware: {nodes} × {per_node} GPUs, as the roles say; the job asks for {asked}")
    flat["hardware.gpu"] = facts.settings.get("hardware.gpu", UNNAMED_GPU)
    if flat["hardware.gpu"] == UNNAMED_GPU:
        assumed.append("hardware.gpu: the script does not say which card; write its name")
    if facts.other_gpus:
        assumed.append(f"{facts.other_gpus} GPUs of other servers have no place in a layout")


def _placement(facts: Facts, flat: dict[str, Any], assumed: list[str]) -> None:
    """Roles on GPUs of their own, or in pools where some share."""
    per_node = flat["hardware.gpus_per_node"]
    if facts.trainer_gpus is None or facts.rollout_gpus is None:
        raise Unmappable("layout: the script leaves open who takes which GPUs")
    flat["roles.learner.model"] = facts.model or "unknown"
    if not facts.model:
        assumed.append("roles.learner.model: the script does not say which model in words that are known")
    size = facts.rollout_tp or 1
    if facts.rollout_tp is None:
        assumed.append("roles.rollout.tensor_parallel: 1 is assumed; the script does not say")
    flat["roles.rollout.tensor_parallel"] = size
    if facts.colocated:
        flat["roles.learner.pool"] = _SHARED
        flat[f"pools.{_SHARED}.gpus"] = _bundles(max(facts.together or facts.trainer_gpus, 1), per_node)
    else:
        flat["roles.learner.gpus"] = list(facts.learner_bundles) or _bundles(facts.trainer_gpus, per_node)
    _engines(facts, flat, size, assumed)
    _critic_and_reference(facts, flat)
    _teacher(facts, flat, assumed)


def _bundles(gpus: int, per_node: int) -> list[int]:
    """``gpus`` node by node, full nodes first."""
    whole, rest = divmod(gpus, per_node)
    if whole > 10_000:
        raise Unmappable("layout: more nodes than a layout holds")
    return [per_node] * whole + [rest] * bool(rest)


def _engines(facts: Facts, flat: dict[str, Any], size: int, assumed: list[str]) -> None:
    gpus = facts.rollout_gpus or 0
    if not gpus and facts.settings.get("roles.rollout.engine") == "hf":
        gpus = facts.trainer_gpus or 0
        assumed.append("roles.rollout: the trainer itself generates; as many engines of transformers are assumed")
    flat["roles.rollout.engines"] = facts.rollout_engines or max(1, gpus // size)
    if facts.colocated:
        flat["roles.rollout.pool"] = _SHARED
        flat["roles.rollout.engines"] = max(1, (gpus or 1) // size)
        flat["roles.rollout.sleep_while_training"] = True


def _critic_and_reference(facts: Facts, flat: dict[str, Any]) -> None:
    """Critic and reference; without a pool of their own they sit with the learner.

    A critic of which nothing else is said is trained as the learner is.
    """
    if facts.critic == "own" and facts.critic_gpus:
        flat[f"pools.{_CRITIC}.gpus"] = _bundles(facts.critic_gpus, flat["hardware.gpus_per_node"])
        flat["roles.critic.pool"] = _CRITIC
    elif facts.critic != "none":
        flat["roles.critic.pool"] = flat.get("roles.learner.pool", "")
    if facts.critic != "none":
        for name in ("micro_batch", "gradient_checkpointing", "zero_stage"):
            if f"roles.learner.{name}" in facts.settings:
                flat[f"roles.critic.{name}"] = facts.settings[f"roles.learner.{name}"]
    if facts.reference:
        flat["roles.reference.pool"] = flat.get("roles.learner.pool", "")


def _teacher(facts: Facts, flat: dict[str, Any], assumed: list[str]) -> None:
    """The teacher: a role that Ray places, or GPUs that its server holds outside Ray."""
    teacher = facts.teacher
    if teacher is None:
        return
    if teacher.gpus is None or not teacher.model:
        assumed.append("roles.teacher: the script does not say which teacher in words that are known")
        return
    size = teacher.tensor_parallel or 1
    if teacher.outside_ray and flat["hardware.nodes"] == 1:
        flat["hardware.gpus_outside_ray"] = min(teacher.gpus, flat["hardware.gpus_per_node"])
        assumed.append(f"hardware.gpus_outside_ray: {teacher.gpus}, the server of the teacher {teacher.model}")
        return
    if not teacher.gpus and not facts.colocated:
        assumed.append(f"roles.teacher: {teacher.model} rides on the trainer's GPUs, for which a layout has no word")
        return
    flat["roles.teacher.model"] = teacher.model
    flat["roles.teacher.tensor_parallel"] = size
    if teacher.gpus:
        flat["roles.teacher.engines"] = max(1, teacher.gpus // size)
    else:
        flat["roles.teacher.pool"] = _SHARED


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested mappings, in the order of the schema's sections."""
    values: dict[str, Any] = {}
    for key in sorted(flat, key=_section):
        *parents, last = key.split(".")
        place = values
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = flat[key]
    return values


def _section(key: str) -> int:
    head = key.partition(".")[0]
    return _SECTIONS.index(head) if head in _SECTIONS else len(_SECTIONS)


def _without_refused(values: dict[str, Any], assumed: list[str]) -> dict[str, Any]:
    """``values`` without settings that the schema refuses, such as a temperature of 0 or save_freq -1."""
    for _ in range(3):
        problems = _problems(values)
        dropped = [problem for problem in problems if _drop(values, problem.key)]
        assumed.extend(f"{problem.key}: left out; it {problem.message}" for problem in dropped)
        if not dropped:
            assumed.extend(f"layout: {problem.key}: {problem.message}" for problem in problems)
            break
    return values


def _problems(values: dict[str, Any]) -> tuple[Problem, ...]:
    """Why the schema refuses ``values``; nothing where it takes them."""
    try:
        load_text(as_yaml(values), "imported")
    except LayoutError as error:
        return error.problems
    return ()


def _drop(values: dict[str, Any], key: str) -> bool:
    """Take one optional setting out; tells whether it was there."""
    required = {name for name, _, _ in _REQUIRED} | {"layout", "name", "algorithm", "hardware.nodes"}
    *parents, last = key.split(".")
    place: Any = values
    for parent in parents:
        place = place.get(parent) if isinstance(place, dict) else None
    if key in required or not isinstance(place, dict) or last not in place:
        return False
    del place[last]
    return True


def as_yaml(values: dict[str, Any]) -> str:
    """The layout as YAML, its keys in the order of ``values``."""
    return dump(values)
