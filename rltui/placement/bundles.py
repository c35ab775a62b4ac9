"""The Ray placement groups that a layout asks for; the trainers request exactly these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from rltui.layout.schema import Layout

Strategy = Literal["STRICT_SPREAD", "PACK"]

CPUS_PER_GPU = 1
"""CPU cores that a bundle reserves beside each of its GPUs."""


class Group(Struct, frozen=True):
    """One placement group: bundles of a role, each an indivisible number of slots on one node.

    Attributes:
        role: Word for people: ``learner`` or ``engine``.
        slots: GPUs (or CPU slots) of each bundle.
        strategy: STRICT_SPREAD puts every bundle on a node of its own; PACK fills nodes in turn.
    """

    role: str
    slots: tuple[int, ...]
    strategy: Strategy


def groups(layout: Layout) -> tuple[Group, ...]:
    """Placement groups of ``layout`` in the order in which they are created."""
    rollout = layout.roles.rollout
    return (
        Group("learner", tuple(layout.roles.learner.gpus), "STRICT_SPREAD"),
        Group("engine", (rollout.tensor_parallel,) * rollout.engines, "PACK"),
    )


def ray_resources(slots: int, on_cpu: bool) -> dict[str, float]:
    """Resources of one Ray bundle with ``slots`` slots."""
    if on_cpu:
        return {"CPU": float(slots)}
    return {"GPU": float(slots), "CPU": float(slots * CPUS_PER_GPU)}
