"""Placement rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.check.rule import Subject, Trouble, rule

if TYPE_CHECKING:
    from collections.abc import Iterator


def _unit(subject: Subject) -> str:
    return "CPU slots" if subject.layout.hardware.on_cpu else "GPUs"


@rule("P101", "error")
def too_many_slots(subject: Subject) -> Iterator[Trouble]:
    """The roles ask for more GPUs than the nodes have.

    Learners take the sum of `roles.learner.gpus`; engines take `engines` × `tensor_parallel`. Ray would wait for the
    missing GPUs until its deadline, with the others held idle meanwhile.
    """
    hardware, roles = subject.layout.hardware, subject.layout.roles
    learners, engines = roles.learner.num_learners, roles.rollout.engines * roles.rollout.tensor_parallel
    total = hardware.nodes * hardware.gpus_per_node
    if learners + engines > total:
        room = (total - learners) // roles.rollout.tensor_parallel
        yield Trouble(
            f"{learners} learner + {engines} engine {_unit(subject)} = {learners + engines}, but "
            f"{hardware.nodes} × {hardware.gpus_per_node} = {total} are there",
            "roles.rollout.engines",
            (f"roles.rollout.engines={room}",) if room >= 1 else (),
        )


@rule("P102", "error")
def bundle_larger_than_node(subject: Subject) -> Iterator[Trouble]:
    """A learner bundle asks for more GPUs than one node has.

    Each entry of `roles.learner.gpus` is one indivisible bundle on one node. Split it over several entries.
    """
    size = subject.layout.hardware.gpus_per_node
    for index, wanted in enumerate(subject.layout.roles.learner.gpus):
        if wanted > size:
            yield Trouble(
                f"learner bundle {index} wants {wanted} {_unit(subject)}, a node has {size}", "roles.learner.gpus"
            )


@rule("P103", "error")
def more_bundles_than_nodes(subject: Subject) -> Iterator[Trouble]:
    """There are more learner bundles than nodes.

    Learner bundles are placed with STRICT_SPREAD: each on a node of its own. The list may be shorter than the number
    of nodes (the nodes left over hold engines), never longer.
    """
    gpus, nodes = subject.layout.roles.learner.gpus, subject.layout.hardware.nodes
    if len(gpus) > nodes:
        yield Trouble(f"{len(gpus)} learner bundles need {len(gpus)} nodes, {nodes} are there", "roles.learner.gpus")


@rule("P104", "error")
def engine_larger_than_node(subject: Subject) -> Iterator[Trouble]:
    """One engine spans more GPUs than a node has.

    An engine's GPUs must sit on one node: tensor parallelism over the network would be slower than one GPU.
    """
    size, wanted = subject.layout.hardware.gpus_per_node, subject.layout.roles.rollout.tensor_parallel
    if wanted > size:
        yield Trouble(
            f"tensor_parallel {wanted} is larger than a node of {size} {_unit(subject)}",
            "roles.rollout.tensor_parallel",
            (f"roles.rollout.tensor_parallel={size}",),
        )


@rule("P105", "error")
def no_room(subject: Subject) -> Iterator[Trouble]:
    """The totals fit, the shapes do not: some bundles find no node with enough free GPUs.

    Bundles are indivisible. With 3 GPUs free on each of 8 nodes, an engine of tensor parallel 4 fits nowhere although
    24 GPUs are free, and Ray would wait for ever.
    """
    layout, placement = subject.layout, subject.placement
    size = layout.hardware.gpus_per_node
    roles = layout.roles
    total = roles.learner.num_learners + roles.rollout.engines * roles.rollout.tensor_parallel
    if total > layout.hardware.nodes * size or roles.rollout.tensor_parallel > size:
        return
    engines = [home for home in placement.homeless if home[0] == "engine"]
    if engines:
        placed = roles.rollout.engines - len(engines)
        yield Trouble(
            f"{len(engines)} of {roles.rollout.engines} engines of {roles.rollout.tensor_parallel} {_unit(subject)} "
            f"find no node with room, though {placement.free_slots} {_unit(subject)} are free in all",
            "roles.rollout.engines",
            (f"roles.rollout.engines={placed}",) if placed else (),
        )


@rule("P106", "warning")
def idle_slots(subject: Subject) -> Iterator[Trouble]:
    """Some GPUs have no role.

    They are allocated, paid for and idle. Where they can hold further engines, that is offered as the fix.
    """
    placement, rollout = subject.placement, subject.layout.roles.rollout
    if placement.homeless or not placement.free_slots:
        return
    room = _further_engines(subject)
    yield Trouble(
        f"{placement.free_slots} of {placement.nodes * placement.slots_per_node} {_unit(subject)} have no role",
        "roles.rollout.engines",
        (f"roles.rollout.engines={rollout.engines + room}",) if room else (),
    )


def _further_engines(subject: Subject) -> int:
    size, tensor_parallel = subject.placement.slots_per_node, subject.layout.roles.rollout.tensor_parallel
    used = [0] * subject.placement.nodes
    for seat in subject.placement.seats:
        used[seat.node] += len(seat.slots)
    return sum((size - taken) // tensor_parallel for taken in used)


@rule("P107", "error")
def too_few_cpus(subject: Subject) -> Iterator[Trouble]:
    """Ray has fewer CPU cores on a node than the roles placed there reserve.

    GPUs that fit are no help when the CPUs of their bundles do not: the job would hang with free GPUs.
    """
    hardware = subject.layout.hardware
    taken: dict[int, int] = {}
    for seat in subject.placement.seats:
        taken[seat.node] = taken.get(seat.node, 0) + len(seat.slots)
    most = max(taken.values(), default=0)
    if most > hardware.ray_cpus_per_node:
        yield Trouble(
            f"the fullest node needs {most} CPU cores for its bundles, Ray is given {hardware.ray_cpus_per_node}",
            "hardware.cpus_per_node",
            (f"hardware.cpus_per_node={most + 1}",),
        )
