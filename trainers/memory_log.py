"""Memory of a run beside its estimate: asks all roles for their peaks and keeps ``memory.json`` up to date."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from rltui.layout.schema import Layout
from rltui.memory import estimate_layout
from rltui.onnode import rundir
from trainers.full_disk import unless_full
from trainers.roles.calls import Role
from trainers.roles.fleet import Fleet
from trainers.roles.meter import memory_report

INTERVAL_S = 10.0
FINAL_S = 5.0
"""Most seconds that the end of a run waits for the last answers."""

UNITS = {
    "resident_gib": "the process with its interpreter and libraries, on the host",
    "allocated_gib": "tensors on the card, by torch; without the CUDA context",
    "reserved_gib": "what torch's allocator holds of the card for them",
}


class MemoryLog:
    """Keeps the attempt's ``memory.json``.

    Roles are asked without waiting for them, because one that works answers late and must not hold up the loop.

    Args:
        attempt: The attempt's directory.
        layout: The layout.
        fleet: The roles.
    """

    def __init__(self, attempt: str, layout: Layout, fleet: Fleet) -> None:
        self._path, self._fleet = f"{attempt}/{rundir.MEMORY}", fleet
        self._estimate = estimate_moments(layout)
        self._asked_at = -math.inf
        self._pending: list[tuple[Role, Any]] = []
        self._roles: dict[str, dict[str, Any]] = {}

    def update(self) -> None:
        """Take what has been answered, and ask again when it is time."""
        self._collect(0.0)
        if not self._pending and time.monotonic() - self._asked_at >= INTERVAL_S:
            self._ask()

    def close(self) -> None:
        """Write the peaks of the whole run, of all roles that answer at once."""
        self._pending = []
        self._ask()
        self._collect(FINAL_S)

    def now(self, role: str) -> dict[str, float]:
        """What ``role`` last said of its memory at that time, rounded; nothing where it has not answered yet."""
        return {name: round(size, 3) for name, size in self._roles.get(role, {}).get("now", {}).items()}

    def _ask(self) -> None:
        self._asked_at = time.monotonic()
        self._pending = [(role, role.actor.__ray_call__.remote(memory_report)) for role in self._fleet.roles]

    def _collect(self, wait_s: float) -> None:
        import ray

        if not self._pending:
            return
        answers = [answer for _, answer in self._pending]
        done = set(ray.wait(answers, num_returns=len(answers), timeout=wait_s)[0])
        for role, answer in self._pending:
            if answer in done:
                self._note(role, answer)
        self._pending = [(role, answer) for role, answer in self._pending if answer not in done]
        if done:
            with unless_full():
                rundir.write_json(self._path, self.document())

    def _note(self, role: Role, answer: Any) -> None:
        import ray

        try:
            report = ray.get(answer)
        except ray.exceptions.RayError:  # it died, which is found and told elsewhere
            return
        known = self._roles.get(role.name, {}).get("moments", {})
        moments = {name: _higher(known.get(name, {}), peak) for name, peak in report["moments"].items()}
        self._roles[role.name] = {"role": role.name, "kind": role.kind, **report, "moments": {**known, **moments}}

    def document(self) -> dict[str, Any]:
        """What ``memory.json`` holds: each role's peaks, beside what was estimated."""
        roles = [self._roles[role.name] for role in self._fleet.roles if role.name in self._roles]
        return {"schema": rundir.SCHEMA, "units": UNITS, "roles": _rounded(roles), "estimate": _rounded(self._estimate)}


def estimate_moments(layout: Layout) -> dict[str, Any]:
    """What was expected of each kind of role: by moment, all of the card's memory and torch's part of it."""
    found = estimate_layout(layout)
    roles = {
        "engine" if role.role == "rollout" else role.role: {
            moment.moment: {"total_gib": moment.total_gib, "torch_gib": moment.own_gib} for moment in role.moments
        }
        for role in found.roles
    }
    return {"roles": roles, "notes": list(found.notes)}


def _higher(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: max(one.get(name, 0.0), other.get(name, 0.0)) for name in {*one, *other}}


def _rounded(value: Any) -> Any:
    """``value`` with numbers that a reader can compare."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
