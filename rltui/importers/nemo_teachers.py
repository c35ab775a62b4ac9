"""NeMo-RL's teachers: one that takes turns with the policy, or several on nodes of their own."""

from __future__ import annotations

from typing import Any

from rltui.importers.facts import Teacher
from rltui.importers.values import HOLE, product, to_bool, to_int, to_text, total

_SECTION = "on_policy_distillation"


def distils(values: dict[str, Any]) -> bool:
    """Whether a recipe scores a policy's own samples by teachers (``on_policy_distillation``)."""
    section = values.get(_SECTION)
    return isinstance(section, dict) and to_bool(section.get("enabled")) is True


def teacher(values: dict[str, Any], complete: bool) -> Teacher:
    """The teachers of a distillation; with 0 GPUs where they take turns with the policy.

    Args:
        values: The recipe over its defaults, interpolated.
        complete: Whether all files of its defaults are there.
    """
    section = values.get(_SECTION)
    if not distils(values) or not isinstance(section, dict):
        single = values.get("teacher")
        name = single.get("model_name") if isinstance(single, dict) else None
        return Teacher(model=to_text(name) or "", gpus=0)
    names = section.get("teacher_model_by_agent_name")
    models: dict[str, Any] = names if isinstance(names, dict) else {}
    apart = section.get("non_colocated_teachers")
    if not isinstance(apart, dict) or to_bool(apart.get("enabled")) is not True:
        return Teacher(model=_model(models), gpus=0 if complete else None)
    groups = _groups(models, section)
    gpus = [_resources(apart, alias) for alias in groups] if groups and complete else [None]
    sizes = {_one(apart, alias, "tensor_model_parallel_size", 1) for alias in groups}
    return Teacher(model=_model(models), gpus=total(*gpus), tensor_parallel=sizes.pop() if len(sizes) == 1 else None)


def _model(models: dict[str, Any]) -> str:
    names = [to_text(name) or "" for name in models.values()]
    return names[0] if names else ""


def _groups(models: dict[str, Any], section: dict[str, Any]) -> list[str]:
    """Names of the teachers that get GPUs: several names of one checkpoint share them, unless that is switched off."""
    if to_bool(section.get("deduplicate_shared_teacher_checkpoints", True)) is False:
        return list(models)
    first: dict[str, str] = {}
    for alias, model in models.items():
        if HOLE in str(model) and len(models) > 1:
            return []  # two checkpoints that are not known may be one
        first.setdefault(str(model), alias)
    return list(first.values())


def _resources(apart: dict[str, Any], alias: str) -> int | None:
    return product(_one(apart, alias, "num_nodes", 1), _one(apart, alias, "gpus_per_node", 8))


def _one(apart: dict[str, Any], alias: str, key: str, default: int) -> int | None:
    """A number of one teacher: its own, else that of all, else NeMo-RL's."""
    overrides = apart.get("teacher_overrides")
    own = overrides.get(alias) if isinstance(overrides, dict) else None
    for group in (own, apart.get("default_teacher_cfg")):
        if isinstance(group, dict) and group.get(key) is not None:
            return to_int(group[key])
    return default
