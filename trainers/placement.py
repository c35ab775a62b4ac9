"""Who sits where: the layout's placement groups on Ray, and the proof that the roles landed as planned."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rltui.placement.bundles import CPUS_PER_GPU, Group, groups, ray_resources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rltui.layout.schema import Layout

POLL_S = 1.0


class PlacementError(RuntimeError):
    """Bundles found no place, or a role is not where it was planned."""


@dataclass(frozen=True)
class Seat:
    """One role's place: which bundle of which placement group, and how many slots of it the role takes."""

    name: str
    role: str
    bundle: int
    slots: int


@dataclass(frozen=True)
class Whereabouts:
    """Where a role's process found itself."""

    pid: int
    host: str
    address: str
    node_id: str
    gpu_ids: tuple[str, ...]


def seats(layout: Layout) -> list[Seat]:
    """The seats of all roles: learners by rank, then engines by number.

    Each learner rank takes one slot, so bundle b holds as many ranks as ``roles.learner.gpus[b]`` says; each engine
    takes a whole bundle.
    """
    bundles = [bundle for bundle, gpus in enumerate(layout.roles.learner.gpus) for _ in range(gpus)]
    learners = [Seat(f"learner {rank}", "learner", bundle, 1) for rank, bundle in enumerate(bundles)]
    rollout = layout.roles.rollout
    return learners + [Seat(f"engine {i}", "engine", i, rollout.tensor_parallel) for i in range(rollout.engines)]


def actor_resources(slots: int, on_cpu: bool) -> dict[str, float]:
    """What Ray is to reserve for an actor of ``slots`` slots, as its options."""
    return {"num_cpus": slots} if on_cpu else {"num_gpus": slots, "num_cpus": slots * CPUS_PER_GPU}


def reserve(layout: Layout, deadline_s: float, check: Callable[[], None]) -> dict[str, Any]:
    """Create the layout's placement groups and wait until all of them have their places.

    Args:
        layout: The layout.
        deadline_s: Most seconds to wait, for all groups together.
        check: Called at least every ``POLL_S``; what it raises ends the wait.

    Returns:
        Ray's placement groups by role.

    Raises:
        PlacementError: The deadline passed; the message has the bundles and what was free on each node.
    """
    from ray.util.placement_group import placement_group

    on_cpu = layout.hardware.on_cpu
    deadline = time.monotonic() + deadline_s
    reserved = {}
    for group in groups(layout):
        bundles = [ray_resources(slots, on_cpu) for slots in group.slots]
        handle = placement_group(bundles, strategy=group.strategy)
        _await(handle, group, on_cpu, deadline, check)
        reserved[group.role] = handle
    return reserved


def _await(handle: Any, group: Group, on_cpu: bool, deadline: float, check: Callable[[], None]) -> None:
    """``wait`` in short turns: ``ready()`` would need a worker, and a group that cannot be placed never answers."""
    began = time.monotonic()
    while not handle.wait(min(POLL_S, max(0.01, deadline - time.monotonic()))):
        check()
        if time.monotonic() >= deadline:
            raise PlacementError(unplaced(group, on_cpu, free_per_node(), time.monotonic() - began))


def unplaced(group: Group, on_cpu: bool, free: Mapping[str, Mapping[str, float]], waited_s: float) -> str:
    """The sentence for a group that found no place, with its shape and what each node has free."""
    resource = "CPU" if on_cpu else "GPU"
    shape = ", ".join(_resources(ray_resources(slots, on_cpu)) for slots in group.slots)
    rule = "each on a node of its own" if group.strategy == "STRICT_SPREAD" else "each whole on one node"
    nodes = "; ".join(f"{host}: {_resources(left)}" for host, left in sorted(free.items())) or "no node is alive"
    return (
        f"the {group.role} bundles found no place within {waited_s:.0f} s: wanted {len(group.slots)} ({shape}) {rule}; "
        f"free now: {nodes}. Wait for {resource}s to become free, or ask for fewer in roles.{_KEYS[group.role]}"
    )


_KEYS = {"learner": "learner.gpus", "engine": "rollout"}


def _resources(resources: Mapping[str, float]) -> str:
    wanted = {name: resources.get(name, 0.0) for name in ("GPU", "CPU") if name == "CPU" or name in resources}
    return " + ".join(f"{amount:g} {name}" for name, amount in wanted.items())


def free_per_node() -> dict[str, dict[str, float]]:
    """Free GPUs and CPUs of each live node, by host name and address."""
    import ray
    from ray._private.state import available_resources_per_node  # Ray has no public call for this

    free = available_resources_per_node()
    alive = [node for node in ray.nodes() if node["Alive"]]
    return {
        f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})": dict(free.get(node["NodeID"], {}))
        for node in alive
    }


def bundle_nodes(reserved: Mapping[str, Any]) -> dict[tuple[str, int], str]:
    """The node id of each (role, bundle)."""
    from ray.util.placement_group import placement_group_table

    return {
        (role, int(bundle)): node
        for role, handle in reserved.items()
        for bundle, node in placement_group_table(handle)["bundles_to_node_id"].items()
    }


def whereabouts(_actor: Any) -> Whereabouts:
    """Runs inside a role's actor (``actor.__ray_call__.remote(whereabouts)``) and says where that is."""
    import os

    import ray

    return Whereabouts(
        pid=os.getpid(),
        host=socket.gethostname(),
        address=ray.util.get_node_ip_address(),
        node_id=ray.get_runtime_context().get_node_id(),
        gpu_ids=tuple(str(gpu) for gpu in ray.get_gpu_ids()),
    )


def verify(
    planned: Sequence[Seat], nodes: Mapping[tuple[str, int], str], found: Sequence[Whereabouts], on_cpu: bool
) -> None:
    """Compare where roles are with where they were planned.

    Args:
        planned: The seats.
        nodes: The node of each bundle, see ``bundle_nodes``.
        found: Where each role is, in the order of ``planned``.
        on_cpu: Slots are CPU processes; there are no cards to compare.

    Raises:
        PlacementError: A role sits on another node than its bundle, learner bundles share a node, a role has the
            wrong number of cards, or two roles have the same card.
    """
    problems = [
        f"{seat.name} is on {place.host} ({place.node_id}), its bundle on {nodes.get((seat.role, seat.bundle))}"
        for seat, place in zip(planned, found, strict=True)
        if nodes.get((seat.role, seat.bundle)) != place.node_id
    ]
    learner_nodes = [node for (role, _), node in nodes.items() if role == "learner"]
    if len(set(learner_nodes)) != len(learner_nodes):
        problems.append("two learner bundles share a node")
    if not on_cpu:
        problems += _card_problems(planned, found)
    if problems:
        raise PlacementError("roles are not where they were planned: " + "; ".join(problems))


def _card_problems(planned: Sequence[Seat], found: Sequence[Whereabouts]) -> list[str]:
    problems: list[str] = []
    owner: dict[tuple[str, str], str] = {}
    for seat, place in zip(planned, found, strict=True):
        if len(place.gpu_ids) != seat.slots:
            problems.append(f"{seat.name} has {len(place.gpu_ids)} GPUs instead of {seat.slots}")
        for gpu in place.gpu_ids:
            first = owner.setdefault((place.node_id, gpu), seat.name)
            if first != seat.name:
                problems.append(f"{first} and {seat.name} share GPU {gpu} of {place.host}")
    return problems
