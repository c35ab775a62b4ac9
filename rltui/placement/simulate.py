"""A deterministic simulation of where Ray places a layout's bundles, on equal nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.placement.bundles import CPUS_PER_GPU, Group, groups
from rltui.placement.result import Homeless, HomelessReason, Placement, Seat, Stranded, StrandedReason
from rltui.placement.scheduler import Nodes, schedule
from rltui.placement.seating import Share, shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.layout.schema import Layout

__all__ = ["Homeless", "Placement", "Seat", "Stranded", "place", "place_bundles", "simulate"]


def place(layout: Layout) -> Placement:
    """Simulate the placement of ``layout`` on its own hardware."""
    hardware = layout.hardware
    wanted = groups(layout)
    seats, homeless, cluster = _run_layout(layout, wanted)
    instances, too_many, idle = _instances(layout, wanted, seats)
    left = [node for node in idle if node.slots] + _left_over(layout, cluster)
    return Placement(
        nodes=hardware.nodes,
        slots_per_node=hardware.gpus_per_node,
        seats=tuple(instances),
        homeless=tuple(homeless + too_many),
        stranded=tuple(sorted(left, key=lambda each: each.node)),
        outside_ray=hardware.gpus_per_node - hardware.ray_gpus_per_node,
    )


def place_bundles(layout: Layout) -> dict[tuple[str, int], int]:
    """Node number of each bundle of ``layout``, by the group's word and the bundle's number, as ``place`` has it."""
    seats, _, _ = _run_layout(layout, groups(layout))
    return {(seat.role, seat.index): seat.node for group in seats for seat in group}


def simulate(
    wanted: Sequence[Group], nodes: int, slots_per_node: int, cpus_per_node: int = 0, on_cpu: bool = False
) -> Placement:
    """Place each group in turn, one seat a bundle; a group that does not fit leaves bundles homeless.

    Args:
        wanted: The groups, in the order in which they are created.
        nodes: Number of nodes.
        slots_per_node: GPUs (or CPU slots) of each.
        cpus_per_node: CPU cores of each; 0: as many as the slots need.
        on_cpu: Slots are CPU cores themselves.
    """
    cpus = cpus_per_node or slots_per_node * CPUS_PER_GPU
    seats, homeless, cluster = _run(wanted, nodes, slots_per_node, cpus, on_cpu)
    flat = tuple(seat for group in seats for seat in group)
    stranded = tuple(
        Stranded(node, slots_per_node - used, "no_role")
        for node, used in enumerate(cluster.used)
        if used < slots_per_node
    )
    return Placement(nodes, slots_per_node, flat, tuple(homeless), stranded)


class _Cluster:
    """How many slots of each node are taken."""

    def __init__(self, nodes: int, slots: int, cpus: int) -> None:
        self.slots, self.cpus = slots, cpus
        self.used = [0] * nodes
        self._ranges: dict[tuple[int, int], tuple[int, ...]] = {}

    def seat(self, group: Group, index: int, node: int) -> Seat:
        """Take the next slots of ``node`` for a bundle."""
        span = self.used[node], self.used[node] + group.slots[index]
        self.used[node] = span[1]
        slots = self._ranges.setdefault(span, tuple(range(*span)))
        return Seat(group.role, index, node, slots, group.pool)

    def why_not(self, group: Group, slots: int, homes: int) -> HomelessReason:
        """Why a bundle of ``slots`` found no node, once ``homes`` bundles of its group have one."""
        if slots > self.slots:
            return "node_too_small"
        if any(self.slots - used >= slots for used in self.used) and self.cpus < self.slots * CPUS_PER_GPU:
            return "no_cpus"
        return "too_few_nodes" if group.strategy == "STRICT_SPREAD" and homes >= len(self.used) else "no_room"


def _run_layout(layout: Layout, wanted: Sequence[Group]) -> tuple[list[list[Seat]], list[Homeless], _Cluster]:
    hardware = layout.hardware
    return _run(wanted, hardware.nodes, hardware.ray_gpus_per_node, hardware.ray_cpus_per_node, hardware.on_cpu)


def _run(
    wanted: Sequence[Group], nodes: int, slots: int, cpus: int, on_cpu: bool
) -> tuple[list[list[Seat]], list[Homeless], _Cluster]:
    """Seats by group and bundle, the homeless, and what is taken of the nodes."""
    free, cluster = Nodes(on_cpu), _Cluster(nodes, slots, cpus)
    free.fill(range(nodes), (slots, cpus))
    seats: list[list[Seat]] = []
    homeless: list[Homeless] = []
    for group in wanted:
        homes = schedule(free, group.slots, group.strategy)
        seats.append([cluster.seat(group, index, homes[index]) for index in sorted(homes)])
        left = [index for index in range(len(group.slots)) if index not in homes]
        why = {width: cluster.why_not(group, width, len(homes)) for width in {group.slots[index] for index in left}}
        homeless += [Homeless(group.role, index, group.slots[index], why[group.slots[index]]) for index in left]
    return seats, homeless, cluster


def _instances(
    layout: Layout, wanted: Sequence[Group], seats: Sequence[Sequence[Seat]]
) -> tuple[list[Seat], list[Homeless], list[Stranded]]:
    """Role instances in the bundles that have a place, engines that their pool cannot hold, and idle pool GPUs."""
    found: list[Seat] = []
    too_many: list[Homeless] = []
    idle: list[Stranded] = []
    for group, placed in zip(wanted, seats, strict=True):
        plan = shares(layout, group)
        for bundle in placed:
            mine = plan.bundles[bundle.index]
            if len(mine) == 1 and mine[0].width == len(bundle.slots):
                found.append(Seat(mine[0].role, mine[0].index, bundle.node, bundle.slots, bundle.pool))
                continue
            found += [_instance(bundle, share) for share in mine]
            covered = max((share.offset + share.width for share in mine), default=0)
            idle.append(Stranded(bundle.node, len(bundle.slots) - covered, "idle_in_pool"))
        too_many += [Homeless(share.role, share.index, share.width, "pool_too_small") for share in plan.left_out]
    return found, too_many, idle


def _instance(bundle: Seat, share: Share) -> Seat:
    slots = bundle.slots[share.offset : share.offset + share.width]
    return Seat(share.role, share.index, bundle.node, slots, bundle.pool)


def _left_over(layout: Layout, cluster: _Cluster) -> list[Stranded]:
    rollout = layout.roles.rollout
    engine = 1 if rollout.pool else rollout.tensor_parallel

    def reason(free: int) -> StrandedReason:
        if free < engine:
            return "too_few_for_an_engine"
        return "no_cpus" if cluster.cpus - (cluster.slots - free) * CPUS_PER_GPU < engine * CPUS_PER_GPU else "no_role"

    frees = ((node, cluster.slots - used) for node, used in enumerate(cluster.used))
    return [Stranded(node, free, reason(free)) for node, free in frees if free > 0]
