"""Who sits where: the layout's placement groups on Ray, and the proof that the roles landed as planned."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rltui.layout.schema import Layout
from rltui.onnode.rundir import PART_LABEL
from rltui.placement.bundles import CPUS_PER_GPU, SIDE_BY_SIDE, Group, groups, part_of, ray_resources, reward_groups
from rltui.placement.shares import Share, shares
from rltui.placement.simulate import place_bundles

POLL_S = 1.0

NODE_ID = "ray.io/node-id"
"""The label that Ray gives each of its nodes."""

KINDS = ("learner", "engine", "reference", "critic", "teacher", "judge", "reward_model", "reward")
"""The kinds of role processes, in the order in which they are listed."""


class PlacementError(RuntimeError):
    """Bundles found no place, or a role is not where it was planned."""


@dataclass(frozen=True)
class PlannedRole:
    """One role process's place.

    Attributes:
        name: For people and for Ray: ``learner 3``, ``engine 0``.
        role: One of ``KINDS``.
        index: Rank, or number of the engine, teacher, judge or reward worker.
        group: The placement group, in the words of ``rltui.placement.bundles.Group.role``.
        bundle: Number of the group's bundle.
        offset: The first of its slots within the bundle.
        slots: How many slots it works on; CPU cores of a reward worker.
        is_guest: Whether these are the slots of a host, which asked Ray for them; a guest asks for none and is told
            the host's cards. Fractions of cards would not do: Ray may put two ranks of one role on the same card.
    """

    name: str
    role: str
    index: int
    group: str
    bundle: int
    offset: int
    slots: int
    is_guest: bool = False


@dataclass(frozen=True)
class ProcessLocation:
    """Where a role's process found itself.

    Attributes:
        pid: Its process id.
        host: Host name.
        address: Address of the node.
        node_id: Ray's id of the node.
        gpu_ids: Ray's numbers of the cards that it was given; none for a guest.
        cards: UUIDs of the cards that it can work on, as the driver says; empty where there is none to ask.
    """

    pid: int
    host: str
    address: str
    node_id: str
    gpu_ids: tuple[str, ...]
    cards: tuple[str, ...] = ()


def planned_roles(layout: Layout) -> list[PlannedRole]:
    """All role processes, each kind by rank or number, in the order of ``KINDS``.

    Learner, critic and reference have a process for each slot of their bundles; an engine, teacher or judge takes as
    many slots as it is wide.

    Raises:
        PlacementError: An engine has no room in its pool.
    """
    found = [plan for group in groups(layout) for plan in _roles_of_group(layout, group)]
    for group in reward_groups(layout):
        found += [
            PlannedRole("", "reward", 0, group.role, bundle, 0, cores) for bundle, cores in enumerate(group.slots)
        ]
    counters = dict.fromkeys(KINDS, 0)
    numbered: list[PlannedRole] = []
    for plan in sorted(found, key=lambda plan: KINDS.index(plan.role)):
        number = counters[plan.role]
        counters[plan.role] += 1
        numbered.append(replace(plan, name=f"{plan.role} {number}", index=number))
    return numbered


def _roles_of_group(layout: Layout, group: Group) -> list[PlannedRole]:
    divided = shares(layout, group)
    if divided.left_out:
        raise PlacementError(f"{group.role} has no room for {divided.left_out[0].role} {divided.left_out[0].index}")
    found = []
    for bundle, members in enumerate(divided.bundles):
        host = _host(members)
        for share in members:
            per_slot = share.role not in SIDE_BY_SIDE
            offsets = range(share.offset, share.offset + share.width) if per_slot else [share.offset]
            width = 1 if per_slot else share.width
            is_guest = share.role != host
            found += [PlannedRole("", share.role, 0, group.role, bundle, offset, width, is_guest) for offset in offsets]
    return found


def _host(members: Sequence[Share]) -> str:
    """The role that asks Ray for the bundle's slots: the one that covers most of them, the earlier one of equals."""
    covered: dict[str, int] = {}
    for share in members:
        covered[share.role] = covered.get(share.role, 0) + share.width
    return max(covered, key=lambda role: covered[role], default="")


def actor_resources(slots: int, on_cpu: bool) -> dict[str, float]:
    """What Ray is to reserve for an actor of ``slots`` slots, as its options; 0 for a guest."""
    if not slots:
        # said, because Ray places actors that ask for nothing by one CPU, which a full bundle does not have
        return {"num_cpus": 0}
    return {"num_cpus": slots} if on_cpu else {"num_gpus": slots, "num_cpus": slots * CPUS_PER_GPU}


def reserve(layout: Layout, deadline_s: float, check: Callable[[], None]) -> dict[str, Any]:
    """Create the layout's placement groups, each bundle on its drawn node, and wait until all have their places.

    Ray alone would put two engines on one node where it was told of more cores than the layout has slots. Where its
    nodes have no room for the drawing (a Ray that others use too), it chooses.

    Args:
        layout: The layout.
        deadline_s: Most seconds to wait, for all groups together.
        check: Called at least every ``POLL_S``; what it raises ends the wait.

    Returns:
        Ray's placement groups by the word of the group.

    Raises:
        PlacementError: The deadline passed; the message has the bundles and what was free on each node.
    """
    from ray.util.placement_group import placement_group

    on_cpu = layout.hardware.on_cpu
    deadline = time.monotonic() + deadline_s
    drawn = drawn_nodes(layout, free_nodes())
    reserved = {}
    for group in (*groups(layout), *reward_groups(layout)):
        of_cores = on_cpu or group.role == "reward"
        bundles = [ray_resources(slots, of_cores) for slots in group.slots]
        keys = [(group.role, bundle) for bundle in range(len(bundles))]
        pinned = [{NODE_ID: drawn[key]} for key in keys if key in drawn]
        handle = placement_group(bundles, strategy=group.strategy, bundle_label_selector=pinned or None)
        _await(handle, group, of_cores, deadline, check)
        reserved[group.role] = handle
    return reserved


def _await(handle: Any, group: Group, on_cpu: bool, deadline: float, check: Callable[[], None]) -> None:
    """``wait`` in short turns: ``ready()`` would need a worker, and a group that cannot be placed never answers."""
    began = time.monotonic()
    while not handle.wait(min(POLL_S, max(0.01, deadline - time.monotonic()))):
        check()
        if time.monotonic() >= deadline:
            raise PlacementError(
                unplaced(group, on_cpu, {node.host: node.free for node in free_nodes()}, time.monotonic() - began)
            )


def unplaced(group: Group, on_cpu: bool, free: Mapping[str, Mapping[str, float]], waited_s: float) -> str:
    """The sentence for a group that found no place, with its shape and what each node has free."""
    resource = "CPU" if on_cpu else "GPU"
    shape = ", ".join(_resources(ray_resources(slots, on_cpu)) for slots in group.slots)
    rule = "each on a node of its own" if group.strategy == "STRICT_SPREAD" else "each whole on one node"
    nodes = "; ".join(f"{host}: {_resources(left)}" for host, left in sorted(free.items())) or "no node is alive"
    return (
        f"the {group.role} bundles found no place within {waited_s:.0f} s: wanted {len(group.slots)} ({shape}) {rule}; "
        f"free now: {nodes}. Wait for {resource}s to become free, or ask for fewer in {_key(group)}"
    )


def _key(group: Group) -> str:
    """Where the layout asks for the group."""
    if group.pool:
        return f"pools.{group.pool}.gpus"
    keys = {"learner": "roles.learner.gpus", "engine": "roles.rollout"}
    return keys.get(group.role, f"roles.{group.role}")


def _resources(resources: Mapping[str, float]) -> str:
    wanted = {name: resources.get(name, 0.0) for name in ("GPU", "CPU") if name == "CPU" or name in resources}
    return " + ".join(f"{amount:g} {name}" for name, amount in wanted.items())


@dataclass(frozen=True)
class FreeNode:
    """A live node of Ray.

    Attributes:
        node_id: Ray's id of it.
        host: Its host name with the address.
        free: What is free there by Ray's word for it.
        part: The number of its kind, as in ``Hardware.parts``.
    """

    node_id: str
    host: str
    free: Mapping[str, float]
    part: int = 0


def free_nodes() -> list[FreeNode]:
    """The live nodes in the order in which Ray lists them."""
    import ray
    from ray._private.state import available_resources_per_node  # Ray has no public call for this

    free = available_resources_per_node()
    return [
        FreeNode(
            node["NodeID"],
            f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})",
            dict(free.get(node["NodeID"], {})),
            int(node.get("Labels", {}).get(PART_LABEL, "0")),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def drawn_nodes(layout: Layout, nodes: Sequence[FreeNode]) -> dict[tuple[str, int], str]:
    """The node id of each (group, bundle) as drawn, on those of ``nodes`` that have the room.

    A drawing's nodes of one kind are alike, so the fullest of them takes the first of its kind that it fits on, in the
    order of ``nodes``.

    Returns:
        Empty where the drawing does not fit: a bundle has no place in it, or a drawn node none on ``nodes``.
    """
    wanted = groups(layout)
    homes = place_bundles(layout)
    if len(homes) != sum(len(group.slots) for group in wanted):
        return {}
    slots = {(group.role, bundle): size for group in wanted for bundle, size in enumerate(group.slots)}
    kinds = {group.role: part_of(layout, group) for group in wanted}
    part = {drawn: kinds[role] for (role, _), drawn in homes.items()}
    needs: dict[int, int] = {}
    for key, drawn in homes.items():
        needs[drawn] = needs.get(drawn, 0) + slots[key]
    left, chosen = list(nodes), {}
    for drawn in sorted(needs, key=lambda drawn: (-needs[drawn], drawn)):
        resources = ray_resources(needs[drawn], layout.hardware.on_cpu)
        alike = (node for node in left if node.part == part[drawn])
        fits = (node for node in alike if all(node.free.get(name, 0.0) >= much for name, much in resources.items()))
        node = next(fits, None)
        if node is None:
            return {}
        left.remove(node)
        chosen[drawn] = node.node_id
    return {key: chosen[drawn] for key, drawn in homes.items()}


def bundle_nodes(reserved: Mapping[str, Any]) -> dict[tuple[str, int], str]:
    """The node id of each (group, bundle)."""
    from ray.util.placement_group import placement_group_table

    return {
        (role, int(bundle)): node
        for role, handle in reserved.items()
        for bundle, node in placement_group_table(handle)["bundles_to_node_id"].items()
    }


def process_location(_actor: Any) -> ProcessLocation:
    """Runs inside a role's actor (``actor.__ray_call__.remote(process_location)``) and says where that is.

    From then on the role's stacks can be had.
    """
    import os

    import ray

    from trainers.roles.card import visible_cards
    from trainers.roles.flight_recorder import tell_stacks

    tell_stacks()
    return ProcessLocation(
        pid=os.getpid(),
        host=socket.gethostname(),
        address=ray.util.get_node_ip_address(),
        node_id=ray.get_runtime_context().get_node_id(),
        gpu_ids=tuple(str(gpu) for gpu in ray.get_gpu_ids()),
        cards=visible_cards(),
    )


def verify(
    planned: Sequence[PlannedRole], nodes: Mapping[tuple[str, int], str], found: Sequence[ProcessLocation], on_cpu: bool
) -> None:
    """Compare where roles are with where they were planned.

    Args:
        planned: What was planned.
        nodes: The node of each bundle, see ``bundle_nodes``.
        found: Where each role is, in the order of ``planned``.
        on_cpu: Slots are CPU processes; there are no cards to compare.

    Raises:
        PlacementError: A role sits on another node than its bundle, bundles of learners or of a pool share a node, a
            role has the wrong number of cards, two roles that are planned apart have the same card, or a guest works
            on other cards than the hosts of its slots.
    """
    problems = [
        f"{plan.name} is on {place.host} ({place.node_id}), its bundle on {nodes.get((plan.group, plan.bundle))}"
        for plan, place in zip(planned, found, strict=True)
        if nodes.get((plan.group, plan.bundle)) != place.node_id
    ]
    for group in sorted({group for group, _ in nodes if group == "learner" or group.startswith("pool ")}):
        homes = [node for (name, _), node in nodes.items() if name == group]
        if len(set(homes)) != len(homes):
            problems.append(f"two {group} bundles share a node")
    if not on_cpu:
        problems += _card_problems(planned, found)
        if any(place.cards for place in found):
            problems += _uuid_problems(planned, found)
    if problems:
        raise PlacementError("roles are not where they were planned: " + "; ".join(problems))


def _card_problems(planned: Sequence[PlannedRole], found: Sequence[ProcessLocation]) -> list[str]:
    problems: list[str] = []
    # Ray numbers cards by node: card 0 of two nodes is not the same one
    owner: dict[tuple[str, str], str] = {}
    for plan, place in zip(planned, found, strict=True):
        if plan.is_guest or plan.role == "reward":
            continue
        if len(place.gpu_ids) != plan.slots:
            problems.append(f"{plan.name} has {len(place.gpu_ids)} GPUs instead of {plan.slots}")
        for gpu in place.gpu_ids:
            first = owner.setdefault((place.node_id, gpu), plan.name)
            if first != plan.name:
                problems.append(f"{first} and {plan.name} share GPU {gpu} of {place.host}")
    return problems


def _uuid_problems(planned: Sequence[PlannedRole], found: Sequence[ProcessLocation]) -> list[str]:
    """What the cards themselves say: Ray's numbers cannot show that two nodes of Ray are one machine, say."""
    problems: list[str] = []
    homes: dict[tuple[str, int, int], tuple[str, str]] = {}
    owner: dict[str, str] = {}
    # hosts first: guests are held against the cards that these have
    for plan, place in sorted(zip(planned, found, strict=True), key=lambda pair: pair[0].is_guest):
        cards = ", ".join(place.cards) or "none"
        if len(place.cards) != plan.slots:
            problems.append(f"{plan.name} sees the cards {cards} of {place.host} instead of {plan.slots}")
            continue
        slots = [(plan.group, plan.bundle, plan.offset + slot) for slot in range(plan.slots)]
        if not plan.is_guest:
            twice = [(owner[card], card) for card in place.cards if card in owner]
            problems += [f"{other} and {plan.name} both work on {card} of {place.host}" for other, card in twice]
            owner |= dict.fromkeys(place.cards, plan.name)
            homes |= {slot: (card, plan.name) for slot, card in zip(slots, place.cards, strict=True)}
        elif all(slot in homes for slot in slots):
            hosts = [homes[slot] for slot in slots]
            if tuple(card for card, _ in hosts) != place.cards:
                planned_cards = ", ".join(f"{card} of {host}" for card, host in hosts)
                problems.append(f"{plan.name} works on {cards}, planned was {planned_cards}")
    return problems


def guest_cards(
    plan: PlannedRole, planned: Sequence[PlannedRole], found: Mapping[str, ProcessLocation]
) -> tuple[str, ...]:
    """The cards of a guest: those of the hosts whose slots it shares, in the order of the slots.

    Args:
        plan: That of the guest.
        planned: All that was planned.
        found: Where the hosts are, by name.

    Raises:
        PlacementError: No host works on some of its slots.
    """
    cards: dict[int, str] = {}
    for host in planned:
        if not host.is_guest and (host.group, host.bundle) == (plan.group, plan.bundle):
            cards.update({host.offset + slot: card for slot, card in enumerate(found[host.name].gpu_ids)})
    wanted = range(plan.offset, plan.offset + plan.slots)
    if any(slot not in cards for slot in wanted):
        raise PlacementError(f"{plan.name} shares slots of {plan.group} that no other role works on")
    return tuple(cards[slot] for slot in wanted)
