"""The Ray placement groups that a layout asks for; the trainers request exactly these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from rltui.layout.roles import SERVED
from rltui.layout.schema import Layout

Strategy = Literal["STRICT_SPREAD", "PACK", "SPREAD"]

CPUS_PER_GPU = 1
"""CPU cores that a bundle reserves beside each of its GPUs."""

ROLES = {
    "learner": "learner",
    "rollout": "engine",
    "reference": "reference",
    "critic": "critic",
    "teacher": "teacher",
    "judge": "judge",
    "reward_model": "reward_model",
}
"""The word for one instance of each role that sits on GPUs, by its key under ``roles``."""

ROLE_KEYS = {word: key for key, word in ROLES.items()}
"""The key under ``roles``, by the word for one instance."""

SIDE_BY_SIDE = ("engine", *SERVED)
"""Words of roles whose instances are engines, each on as many slots as it is wide."""

GUESTS = ("reference", "critic")
"""Roles that sit with the learner where they have no pool."""


class Group(Struct, frozen=True):
    """One placement group: bundles of a role or a pool, each an indivisible number of slots on one node.

    Attributes:
        role: Word for people, unique in a layout: ``learner``, ``engine``, one of ``SERVED`` or ``pool NAME``.
        slots: GPUs (or CPU slots) of each bundle.
        strategy: What Ray is told: STRICT_SPREAD puts every bundle on a node of its own, PACK fills nodes in turn, and
            SPREAD, of bundles without slots, takes a new node for each as long as there is one.
        pool: Name of the pool; empty where a role has GPUs of its own.
        members: Who sits in the bundles, in the words of ``ROLES``; they share the GPUs in time.
    """

    role: str
    slots: tuple[int, ...]
    strategy: Strategy
    pool: str = ""
    members: tuple[str, ...] = ()


def groups(layout: Layout) -> tuple[Group, ...]:
    """Placement groups of ``layout`` in the order in which they are created.

    What must have nodes of its own comes first (pools, then learners), then the larger of what only needs room
    (teachers, judges and reward models before engines), so that small bundles fill the gaps.
    """
    return tuple(group for group in _candidates(layout) if group.slots)


def reward_groups(layout: Layout) -> tuple[Group, ...]:
    """The placement group of the reward workers, where there are any: CPU cores beside the GPUs, over all nodes."""
    workers, role = layout.num_reward_workers, layout.roles.reward
    if role is None or not workers:
        return ()
    return (Group("reward", (role.cpus_per_worker,) * workers, "SPREAD", members=("reward",)),)


def _candidates(layout: Layout) -> Iterator[Group]:
    learner, rollout = layout.roles.learner, layout.roles.rollout
    for name, pool in layout.pools.items():
        yield Group(f"pool {name}", tuple(pool.gpus), "STRICT_SPREAD", name, pool_members(layout, name))
    if not learner.pool:
        guests = tuple(role for role in GUESTS if _is_guest(layout, role))
        yield Group("learner", tuple(learner.gpus), "STRICT_SPREAD", members=("learner", *guests))
    for role in SERVED:
        served = getattr(layout.roles, role)
        if served is not None and not served.pool:
            yield Group(role, (served.tensor_parallel,) * served.engines, "PACK", members=(role,))
    if not rollout.pool:
        yield Group("engine", (rollout.tensor_parallel,) * rollout.engines, "PACK", members=("engine",))


def part_of(layout: Layout, group: Group) -> int:
    """The number of the kind of node, as in ``Hardware.parts``, whose nodes hold ``group``."""
    return layout.hardware.part_of(ROLE_KEYS[group.members[0]]) if group.members and layout.hardware.more else 0


def _is_guest(layout: Layout, role: str) -> bool:
    found = getattr(layout.roles, role)
    return found is not None and not found.pool


def pool_members(layout: Layout, pool: str) -> tuple[str, ...]:
    """Words of the roles that share ``pool``; reference and critic without a pool go where the learner goes."""
    members = []
    for key, word in ROLES.items():
        role = getattr(layout.roles, key)
        home = role and (role.pool or (layout.roles.learner.pool if key in GUESTS else ""))
        if home == pool:
            members.append(word)
    return tuple(members)


def ray_resources(slots: int, on_cpu: bool) -> dict[str, float]:
    """Resources of one Ray bundle with ``slots`` slots."""
    if on_cpu:
        return {"CPU": float(slots)}
    return {"GPU": float(slots), "CPU": float(slots * CPUS_PER_GPU)}
