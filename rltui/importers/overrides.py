"""What a user says of a script's open ends: a layout's ``hardware.nodes=2``, or ``NNODES=2`` of its environment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from rltui.errors import UsageError
from rltui.importers.values import product, to_int
from rltui.layout.convert import field_type, value_problems
from rltui.layout.document import dotted
from rltui.layout.errors import LayoutError
from rltui.layout.overrides import parse_override
from rltui.layout.schema import Layout

if TYPE_CHECKING:
    from rltui.importers.facts import Facts

_VARIABLE = re.compile(r"([A-Z_][A-Z0-9_]*)=(.*)\Z", re.DOTALL)
_COUNTS = {
    "hardware.nodes": "nodes",
    "hardware.gpus_per_node": "gpus_per_node",
    "roles.rollout.tensor_parallel": "rollout_tp",
    "roles.rollout.engines": "rollout_engines",
}
"""Numbers that decide who takes which GPUs, by the key under which a layout has them."""


class Overrides(Struct, frozen=True):
    """Values that are given beside a script.

    Attributes:
        settings: By dotted key of a layout.
        environ: Variables of the environment that a shell script sees.
    """

    settings: dict[str, Any] = {}
    environ: dict[str, str] = {}


def read_overrides(words: Sequence[str]) -> Overrides:
    """Words ``key.path=value`` of a layout and ``NAME=value`` of an environment, later ones winning.

    Raises:
        UsageError: A word that is neither.
    """
    settings: dict[str, Any] = {}
    environ: dict[str, str] = {}
    for word in words:
        if match := _VARIABLE.match(word):
            environ[match.group(1)] = match.group(2)
            continue
        try:
            path, value = parse_override(word)
            problems = () if isinstance(value, dict) else value_problems(field_type(Layout, path), value, path)
            if problems:
                raise LayoutError(problems)
        except LayoutError as error:
            hint = "Write a layout's key (hardware.gpus_per_node=8) or a variable of the script (NNODES=4)."
            raise UsageError(f"{word[:80]}: {error}", hint) from error
        settings[dotted(path)] = value
    return Overrides(settings, environ)


def given(facts: Facts, settings: dict[str, Any]) -> Facts:
    """``facts`` with what was said beside the script, and with the GPUs that follow from it."""
    if not settings:
        return facts
    counts = {name: number for key, name in _COUNTS.items() if (number := to_int(settings.get(key))) is not None}
    facts = replace(facts, **counts, settings={**facts.settings, **settings})
    if model := settings.get("roles.learner.model"):
        facts = replace(facts, model=str(model))
    facts = replace(facts, unsure=tuple(key for key in facts.unsure if key not in settings))
    return _completed(facts)


def _completed(facts: Facts) -> Facts:
    """The GPUs of each role that follow from the machine, where the script left them open."""
    machine = product(facts.nodes, facts.gpus_per_node)
    engines = product(facts.rollout_engines, facts.rollout_tp)
    if facts.declared_gpus is None:
        facts = replace(facts, declared_gpus=machine)
    if facts.colocated and facts.trainer_gpus is None:
        facts = replace(facts, trainer_gpus=machine, rollout_gpus=machine)
    if facts.rollout_gpus is None:
        facts = replace(facts, rollout_gpus=engines)
    return facts
