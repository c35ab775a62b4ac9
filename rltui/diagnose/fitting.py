"""Fitting remedies to the layout that ran: relative changes become values, and changes of nothing are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from rltui.diagnose.verdicts import Change, Diagnosis, Remedy


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


def in_own_words(diagnosis: Diagnosis, words: Mapping[str, str], values: Mapping[str, str]) -> Diagnosis:
    """Return ``diagnosis`` of another system's run with its remedies in that system's words.

    Args:
        diagnosis: What went wrong.
        words: Keys of a layout, and what the system calls them.
        values: What the run's command sets, by the system's words; what it leaves out is not known.
    """
    remedies = (_in_own_words(remedy, words, values) for remedy in diagnosis.remedies)
    return structs.replace(diagnosis, remedies=tuple(remedy for remedy in remedies if remedy is not None))


def _in_own_words(remedy: Remedy, words: Mapping[str, str], values: Mapping[str, str]) -> Remedy | None:
    """The remedy in the system's words; None where it has nothing left to change."""
    changes = tuple(own for change in remedy.changes if (own := _own(change, words, values)) is not None)
    if not changes and not remedy.commands and any(change.key in words for change in remedy.changes):
        return None
    return structs.replace(remedy, changes=changes)


def _own(change: Change, words: Mapping[str, str], values: Mapping[str, str]) -> Change | None:
    """The change with the system's words for it; None where it has none, the bound is reached, or it is so already."""
    if change.key.partition(".")[0] == "slurm":
        return change
    own = words.get(change.key)
    if own is None:
        return None
    if change.operation != "set":
        number = _number(values.get(own, ""))
        if number is None:
            return structs.replace(change, own=f"{own} {change.in_words}")
        value = change.applied_to(number)
        if value is None:
            return None
        change = Change(change.key, "set", value if isinstance(value, int | float) else str(value))
    said = values.get(own, "").lower()
    if said == str(change.value).lower():
        return None
    if change.value is True and own.startswith("--"):
        if said.startswith("--"):  # the option behind it: a flag without a value is on
            return None
        return structs.replace(change, own=own)
    return structs.replace(change, own=f"{own}={change.in_words}")


def _number(text: str) -> int | float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return int(text) if text.lstrip("-").isdigit() else number


def current(layout: Mapping[str, Any], key: str) -> Any:
    """Return the value of the dotted ``key``; None where the layout has none."""
    value: Any = layout
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
