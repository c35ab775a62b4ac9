"""Which overrides make a role fit: the estimate's own advice, taken until it does."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from msgspec import structs

from rltui.check.rules.placement import overbooked
from rltui.errors import UsageError
from rltui.layout.overrides import parse_override
from rltui.layout.schema import Layout
from rltui.memory.layouts import estimate_roles
from rltui.placement.simulate import place

MOST_KNOBS = 16
"""Steps of advice; a micro-batch is halved once a step."""


def cure(layout: Layout, role: str, good: Collection[str]) -> tuple[str, ...]:
    """The overrides after which the verdict on ``role`` is among ``good``; empty where no setting leads there."""
    words: dict[str, str] = {}
    for _ in range(MOST_KNOBS):
        found = estimate_roles(layout).role(role)
        if found is None or found.verdict in good:
            return tuple(words.values())
        key = found.knob.partition("=")[0]
        if not key or words.get(key) == found.knob:
            return ()
        words[key] = found.knob
        changed = with_word(layout, found.knob)
        if key.endswith("engines") and overbooked(changed) > max(0, overbooked(layout)):
            return ()
        layout = changed
    return ()


def cure_engine(layout: Layout, role: str) -> tuple[str, ...]:
    """The overrides that make room for a KV cache, with as many engines as the same GPUs hold then.

    Nothing where no node would have the room for such an engine.
    """
    words: dict[str, str] = {}
    gpus, placed = layout.slots_of(role), not place(layout).unplaced
    for _ in range(MOST_KNOBS):
        found = estimate_roles(layout).role(role)
        if found is None or not found.blocked:
            return () if placed and place(layout).unplaced else tuple(words.values())
        if not found.knob:
            return ()
        changed = with_word(layout, found.knob)
        words[found.knob.partition("=")[0]] = found.knob
        settings = getattr(changed.roles, role)
        if settings.tensor_parallel > gpus:
            return ()
        if settings.engines and not settings.pool and settings.engines * settings.tensor_parallel > gpus:
            key = f"roles.{role}.engines"
            words[key] = f"{key}={gpus // settings.tensor_parallel}"
            changed = with_word(changed, words[key])
        layout = changed
    return ()


def has_room(layout: Layout, role: str) -> bool:
    """Whether an engine's share holds its weights and a sequence, as far as that is known."""
    try:
        found = estimate_roles(layout).role(role)
    except UsageError:
        return True
    return found is None or not found.blocked


def sequences_at_once(layout: Layout, role: str) -> float | None:
    """Sequences of full length that all engines of ``role`` hold together; None where that is not known."""
    try:
        found = next((engine for engine in estimate_roles(layout).engines if engine.role == role), None)
    except UsageError:
        return None
    if found is None or found.max_concurrency is None:
        return None
    engines = layout.num_engines if role == "rollout" else getattr(layout.roles, role).engines
    return float(engines * found.max_concurrency)


def with_word(layout: Layout, word: str) -> Layout:
    """``layout`` with one override of a plain value, which is known to be valid."""
    path, value = parse_override(word)
    changed: Layout = _replaced(layout, [str(part) for part in path], value)
    return changed


def _replaced(struct: Any, path: list[str], value: Any) -> Any:
    name, *rest = path
    return structs.replace(struct, **{name: _replaced(getattr(struct, name), rest, value) if rest else value})
