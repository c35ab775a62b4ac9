"""Engines that share cards with other roles sleep while these work, and wake in two stages around a weight transfer."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rltui.layout.roles import SERVED
from rltui.layout.schema import Layout
from trainers.placement import PlannedRole
from trainers.roles.calls import Role, RoleDiedError, call_all
from trainers.roles.completions import Part


class EngineSleep:
    """Knows whether the engines sleep.

    Args:
        engines: The engines, where they are to sleep.
        neighbours: The roles on their cards.
        timeout_s: Most seconds to fall asleep, and to wake up.

    Attributes:
        asleep: Whether they were put to sleep and did not wake up.
    """

    def __init__(self, engines: Sequence[Role], neighbours: Sequence[Role], timeout_s: float) -> None:
        self._engines, self._neighbours, self._timeout_s = engines, neighbours, timeout_s
        self._waking_s = 0.0
        self.asleep = False

    @property
    def is_used(self) -> bool:
        """Whether the engines sleep at all."""
        return bool(self._engines)

    def begin(self) -> None:
        """Put the engines to sleep, unless they sleep; one that died is found when it is to wake up.

        Raises:
            RoleError: One failed, or did not answer in time.
        """
        if self._engines and not self.asleep:
            # before the call: one that dies while it falls asleep is found when it is to wake up
            self.asleep = True
            self._tell([(engine, engine.actor.sleep.remote()) for engine in self._engines], "falling asleep")

    def end(self, part: Part) -> list[RoleDiedError]:
        """Wake a part of the engines, once the roles on their cards gave back what they do not use.

        Returns:
            The deaths of roles that died, or did not answer in time.

        Raises:
            RoleError: A role failed.
        """
        if not self.asleep:
            return []
        began = time.monotonic()
        # torch's allocator keeps blocks that it freed: vLLM would run out of memory on a card that is half empty
        deaths = self.make_room()
        if not deaths:
            deaths = self._tell([(engine, engine.actor.wake.remote(part)) for engine in self._engines], "waking up")
        self.asleep = bool(deaths) or part != "cache"
        self._waking_s += time.monotonic() - began
        return deaths

    def make_room(self) -> list[RoleDiedError]:
        """Let the roles on the engines' cards give back what they do not use.

        Returns:
            The deaths of roles that died, or did not answer in time.

        Raises:
            RoleError: A role failed.
        """
        releases = [(role, role.actor.release_card.remote()) for role in self._neighbours]
        return self._tell(releases, "making room for the engines")

    def take_waking_s(self) -> float:
        """Seconds that waking took since the last call."""
        waited, self._waking_s = self._waking_s, 0.0
        return waited

    def _tell(self, calls: Sequence[tuple[Role, object]], doing: str) -> list[RoleDiedError]:
        try:
            call_all(calls, self._timeout_s, doing)
        except RoleDiedError as death:
            return [death, *death.others]
        return []


def plan_engine_sleep(
    layout: Layout, planned: Sequence[PlannedRole], roles: Sequence[Role], timeout_s: float
) -> EngineSleep:
    """How the layout's engines sleep: never where it does not ask for it, or nobody shares their slots."""
    slots = {
        plan.name: {(plan.group, plan.bundle, plan.offset + slot) for slot in range(plan.slots)} for plan in planned
    }
    taken = set().union(*(slots[plan.name] for plan in planned if plan.role == "engine"))
    neighbours = [role for role in roles if role.kind != "engine" and slots[role.name] & taken]
    if not layout.roles.rollout.sleep_while_training or not neighbours:
        return EngineSleep([], [], timeout_s)
    return EngineSleep([role for role in roles if role.kind == "engine"], neighbours, timeout_s)


def kinds_that_load_first(layout: Layout, *, engines_sleep: bool) -> list[str]:
    """Kinds of roles that load before all others, one kind after the other: engines, then what else vLLM serves.

    vLLM measures what is free on its card to size its cache, and fails where another process frees memory meanwhile,
    as every model does that loads there.
    """
    served = {"engine": layout.roles.rollout, **{kind: getattr(layout.roles, kind) for kind in SERVED}}
    measuring = [kind for kind, role in served.items() if role is not None and role.pool and role.engine == "vllm"]
    return measuring if "engine" in measuring or not engines_sleep else ["engine", *measuring]
