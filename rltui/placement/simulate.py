"""A deterministic simulation of where Ray places a layout's bundles, on nodes that are equal within each kind."""

from __future__ import annotations

from collections.abc import Sequence

from rltui.layout.schema import Layout
from rltui.placement.bundles import CPUS_PER_GPU, Group, groups, part_of
from rltui.placement.result import Placement, RoleInstance, Stranded, StrandedReason, UnplacedBundle, UnplacedReason
from rltui.placement.scheduler import Nodes, schedule
from rltui.placement.shares import Share, shares

__all__ = ["Placement", "RoleInstance", "Stranded", "UnplacedBundle", "place", "place_bundles"]


def place(layout: Layout) -> Placement:
    """Simulate the placement of ``layout`` on its own hardware."""
    hardware = layout.hardware
    parts, wanted = hardware.parts, groups(layout)
    bundles, unplaced, clusters = _run_layout(layout, wanted)
    instances, too_many, idle = _instances(layout, wanted, bundles)
    left = [node for node in idle if node.slots] + _left_over(layout, clusters)
    return Placement(
        nodes=hardware.all_nodes,
        slots_per_node=max(part.gpus_per_node for part in parts),
        instances=tuple(instances),
        unplaced=tuple(unplaced + too_many),
        stranded=tuple(sorted(left, key=lambda each: each.node)),
        outside_ray=hardware.gpus_per_node - hardware.ray_gpus_per_node,
        slots=tuple(part.gpus_per_node for part in parts for _ in range(part.nodes)) if hardware.more else (),
    )


def place_bundles(layout: Layout) -> dict[tuple[str, int], int]:
    """Node number of each bundle of ``layout``, by the group's word and the bundle's number, as ``place`` has it."""
    bundles, _, _ = _run_layout(layout, groups(layout))
    return {(one.role, one.index): one.node for group in bundles for one in group}


class _Cluster:
    """How many slots of each node of one kind are taken; ``first`` is the number of its first node."""

    def __init__(self, nodes: int, slots: int, cpus: int, first: int = 0) -> None:
        self.slots, self.cpus, self.first = slots, cpus, first
        self.used = [0] * nodes
        self._ranges: dict[tuple[int, int], tuple[int, ...]] = {}

    def take(self, group: Group, index: int, node: int) -> RoleInstance:
        """Take the next slots of ``node`` for a bundle."""
        span = self.used[node], self.used[node] + group.slots[index]
        self.used[node] = span[1]
        slots = self._ranges.setdefault(span, tuple(range(*span)))
        return RoleInstance(group.role, index, self.first + node, slots, group.pool)

    def why_not(self, group: Group, slots: int, homes: int) -> UnplacedReason:
        """Why a bundle of ``slots`` found no node, once ``homes`` bundles of its group have one."""
        if slots > self.slots:
            return "node_too_small"
        if any(self.slots - used >= slots for used in self.used) and self.cpus < self.slots * CPUS_PER_GPU:
            return "no_cpus"
        return "too_few_nodes" if group.strategy == "STRICT_SPREAD" and homes >= len(self.used) else "no_room"


def _run_layout(
    layout: Layout, wanted: Sequence[Group]
) -> tuple[list[list[RoleInstance]], list[UnplacedBundle], list[_Cluster]]:
    """As ``_run``, each group on the nodes of its kind; what is taken, by kind."""
    bundles: list[list[RoleInstance]] = [[] for _ in wanted]
    unplaced: list[UnplacedBundle] = []
    clusters: list[_Cluster] = []
    first = 0
    for number, part in enumerate(layout.hardware.parts):
        mine = [index for index, group in enumerate(wanted) if part_of(layout, group) == number]
        groups_here = [wanted[index] for index in mine]
        slots, cpus = part.ray_gpus_per_node, part.ray_cpus_per_node
        placed, left, cluster = _run(groups_here, part.nodes, slots, cpus, part.on_cpu, first)
        for index, found in zip(mine, placed, strict=True):
            bundles[index] = found
        unplaced += left
        clusters.append(cluster)
        first += part.nodes
    return bundles, unplaced, clusters


def _run(
    wanted: Sequence[Group], nodes: int, slots: int, cpus: int, on_cpu: bool, first: int
) -> tuple[list[list[RoleInstance]], list[UnplacedBundle], _Cluster]:
    """Bundles by group, those without a place, and what is taken of the nodes; the first one has number ``first``."""
    free, cluster = Nodes(on_cpu), _Cluster(nodes, slots, cpus, first)
    free.fill(range(nodes), (slots, cpus))
    placed: list[list[RoleInstance]] = []
    unplaced: list[UnplacedBundle] = []
    for group in wanted:
        homes = schedule(free, group.slots, group.strategy)
        placed.append([cluster.take(group, index, homes[index]) for index in sorted(homes)])
        left = [index for index in range(len(group.slots)) if index not in homes]
        why = {width: cluster.why_not(group, width, len(homes)) for width in {group.slots[index] for index in left}}
        unplaced += [UnplacedBundle(group.role, index, group.slots[index], why[group.slots[index]]) for index in left]
    return placed, unplaced, cluster


def _instances(
    layout: Layout, wanted: Sequence[Group], bundles: Sequence[Sequence[RoleInstance]]
) -> tuple[list[RoleInstance], list[UnplacedBundle], list[Stranded]]:
    """Role instances in the bundles that have a place, engines that their pool cannot hold, and idle pool GPUs."""
    found: list[RoleInstance] = []
    too_many: list[UnplacedBundle] = []
    idle: list[Stranded] = []
    for group, placed in zip(wanted, bundles, strict=True):
        plan = shares(layout, group)
        for bundle in placed:
            mine = plan.bundles[bundle.index]
            if len(mine) == 1 and mine[0].width == len(bundle.slots):
                found.append(RoleInstance(mine[0].role, mine[0].index, bundle.node, bundle.slots, bundle.pool))
                continue
            found += [_instance(bundle, share) for share in mine]
            covered = max((share.offset + share.width for share in mine), default=0)
            idle.append(Stranded(bundle.node, len(bundle.slots) - covered, "idle_in_pool"))
        too_many += [UnplacedBundle(share.role, share.index, share.width, "pool_too_small") for share in plan.left_out]
    return found, too_many, idle


def _instance(bundle: RoleInstance, share: Share) -> RoleInstance:
    slots = bundle.slots[share.offset : share.offset + share.width]
    return RoleInstance(share.role, share.index, bundle.node, slots, bundle.pool)


def _left_over(layout: Layout, clusters: Sequence[_Cluster]) -> list[Stranded]:
    rollout, home = layout.roles.rollout, layout.hardware.part_of("rollout")
    engine = 1 if rollout.pool else rollout.tensor_parallel
    return [
        Stranded(cluster.first + node, cluster.slots - used, _why_free(cluster, cluster.slots - used, width))
        for number, cluster in enumerate(clusters)
        for width in [engine if number == home else 1]  # where no engine may be, none is missed
        for node, used in enumerate(cluster.used)
        if used < cluster.slots
    ]


def _why_free(cluster: _Cluster, free: int, engine: int) -> StrandedReason:
    """Why ``free`` slots of a node have nobody, where an engine needs ``engine``."""
    if free < engine:
        return "too_few_for_an_engine"
    return "no_cpus" if cluster.cpus - (cluster.slots - free) * CPUS_PER_GPU < engine * CPUS_PER_GPU else "no_role"
