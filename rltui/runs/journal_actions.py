"""The journal as people read it: one action with its outcome, out of the entries before, during and after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct


class JournalAction(Struct, frozen=True, kw_only=True):
    """One action that rltui took, or began.

    Attributes:
        action: ``submit``, ``cancel``, ``resubmit``, ``replace``, ``hands-off`` …
        outcome: The last that is known: ``done``, ``failed``, ``unknown`` …; ``intent`` where nothing came after it.
        began_at: Epoch seconds.
        took_s: Seconds until the outcome; None where there is none.
        words: What it changed: ``key.path=value``, ``--exclude NODE``, ``on`` or ``off``; the command of a shell.
        by: pid@host of the rltui that did it.
    """

    action: str
    outcome: str
    began_at: float
    took_s: float | None = None
    run: str = ""
    attempt: int = 0
    cluster: str = ""
    job: str = ""
    words: tuple[str, ...] = ()
    reason: str = ""
    by: str = ""


def actions(entries: Iterable[Mapping[str, Any]]) -> list[JournalAction]:
    """``entries``, oldest first, as actions in the order of their beginning; an entry that is none is left out."""
    groups: list[list[Mapping[str, Any]]] = []
    open_groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for entry in entries:
        if not isinstance(entry.get("time"), (int, float)) or "action" not in entry:
            continue
        about = tuple(str(entry.get(name, "")) for name in ("action", "run", "attempt", "cluster"))
        group = open_groups.get(about)
        if group is None or entry.get("phase") == "intent" or entry["action"] == "hands-off":
            group = open_groups[about] = _replaced(groups, entry)
        group.append(entry)
    return [_action(group) for group in groups]


def _replaced(groups: list[list[Mapping[str, Any]]], entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The group that ``entry`` begins; a resubmission belongs to the change of a live run that it carries out."""
    if entry["action"] == "resubmit":
        own = (group for group in reversed(groups) if group[-1].get("run") == entry.get("run"))
        before: list[Mapping[str, Any]] | None = next((group for group in own if group[-1]["action"] != "cancel"), None)
        if before is not None and before[-1]["action"] == "replace":
            return before
    fresh: list[Mapping[str, Any]] = []
    groups.append(fresh)
    return fresh


def _action(entries: list[Mapping[str, Any]]) -> JournalAction:
    first, last = entries[0], entries[-1]
    known = {name: value for entry in entries for name, value in entry.items() if value not in ("", None)}
    outcome = next((entry for entry in reversed(entries) if entry.get("phase") != "recorded"), last)
    is_over = outcome.get("phase") not in ("intent", "submitting")
    attempt = known.get("attempt", 0)
    return JournalAction(
        action=str(last["action"]),
        outcome=str(outcome.get("phase", "")),
        began_at=float(first["time"]),
        took_s=max(0.0, float(outcome["time"]) - float(first["time"])) if is_over else None,
        run=str(known.get("run", "")),
        attempt=attempt if isinstance(attempt, int) else 0,
        cluster=str(known.get("cluster", "")),
        job=str(known.get("job", "")),
        words=_words(known),
        reason=str(outcome.get("reason", "")),
        by=f"{first.get('pid', '?')}@{first.get('host', '?')}",
    )


def _words(known: Mapping[str, Any]) -> tuple[str, ...]:
    listed = [(name, known.get(name)) for name in ("overrides", "exclude")]
    overrides, exclude = ([str(word) for word in value] if isinstance(value, list) else [] for _, value in listed)
    switched = ["on" if known["on"] else "off"] if "on" in known else []
    command = [str(known["command"])] if "command" in known else []
    return (*command, *overrides, *(f"--exclude {node}" for node in exclude), *switched)
