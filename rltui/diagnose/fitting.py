"""Fitting remedies to the layout that ran: relative changes become values, and changes of nothing are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from rltui.diagnose.verdicts import Change

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rltui.diagnose.verdicts import Diagnosis, Remedy


def fitted(diagnosis: Diagnosis, layout: Mapping[str, Any]) -> Diagnosis:
    """Return ``diagnosis`` with its remedies in the numbers of ``layout`` (nested, as loaded)."""
    remedies = (_fitted(remedy, layout) for remedy in diagnosis.remedies)
    return structs.replace(diagnosis, remedies=tuple(remedy for remedy in remedies if remedy is not None))


def _fitted(remedy: Remedy, layout: Mapping[str, Any]) -> Remedy | None:
    """The remedy in concrete values; None where all it had were changes that change nothing any more."""
    changes = tuple(new for change in remedy.changes if (new := _set(change, layout)) is not None)
    if remedy.changes and not changes and not remedy.commands:
        return None
    return structs.replace(remedy, changes=changes)


def _set(change: Change, layout: Mapping[str, Any]) -> Change | None:
    value = change.applied_to(current(layout, change.key))
    if value is None:
        return None
    words = f"[{', '.join(value)}]" if isinstance(value, list) else value
    return Change(change.key, "set", words)


def current(layout: Mapping[str, Any], key: str) -> Any:
    """Return the value of the dotted ``key``; None where the layout has none."""
    value: Any = layout
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
