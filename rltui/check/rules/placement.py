"""Placement rules: do the bundles fit the nodes?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rltui.check.rule import Subject, Trouble, rule, settled_by
from rltui.check.rules.widths import widest
from rltui.layout.roles import SERVED
from rltui.layout.schema import Layout
from rltui.placement.bundles import CPUS_PER_GPU, ROLE_KEYS, SIDE_BY_SIDE, groups, part_of


def sizes_of_part(layout: Layout, number: int) -> dict[str, int]:
    """Slots that each placement group on a kind of node asks for, by its word; ``number`` is that in ``parts``."""
    return {group.role: sum(group.slots) for group in groups(layout) if part_of(layout, group) == number}


def overbooked(layout: Layout) -> int:
    """How many more slots the roles ask for than there are, on the kind of node that lacks most; else 0 or less."""
    return max(
        sum(sizes_of_part(layout, number).values()) - part.nodes * part.ray_gpus_per_node
        for number, part in enumerate(layout.hardware.parts)
    )


def part_key(layout: Layout, number: int) -> str:
    """The layout key of a kind of node, by its number in ``Hardware.parts``."""
    return f"hardware.more.{list(layout.hardware.more)[number - 1]}" if number else "hardware"


def mem_gib_of(layout: Layout, number: int) -> int:
    """Memory that the job asks for on each node of a kind, GiB; 0: it names none."""
    return list(layout.hardware.more.values())[number - 1].mem_gib if number else layout.slurm.mem_gib


def mem_gib_key(layout: Layout, number: int) -> str:
    """The layout key of that memory."""
    return f"{part_key(layout, number)}.mem_gib" if number else "slurm.mem_gib"


def key_of(role: str) -> str:
    """The layout key that a placement word stands for."""
    if role.startswith("pool "):
        return f"pools.{role[5:]}.gpus"
    if role in SIDE_BY_SIDE:
        return f"roles.{ROLE_KEYS[role]}.engines"
    return "roles.learner.gpus" if role == "learner" else "roles"


@rule("P101", "error")
def too_many_slots(subject: Subject) -> Iterator[Trouble]:
    """The roles ask for more GPUs than the nodes have.

    Learners take the sum of `roles.learner.gpus`; engines, teachers and judges take `engines` × `tensor_parallel`;
    pools take what they list, on top of these. GPUs that a server outside Ray holds do not count. Ray would wait for
    the missing GPUs until its deadline, with the others held idle meanwhile.
    """
    layout = subject.layout
    for number, hardware in enumerate(layout.hardware.parts):
        wanted, there = sizes_of_part(layout, number), hardware.nodes * hardware.ray_gpus_per_node
        excess = sum(wanted.values()) - there
        if excess <= 0:
            continue
        room = (wanted.get("engine", 0) - excess) // layout.roles.rollout.tensor_parallel
        parts = " + ".join(f"{slots} {role}" for role, slots in wanted.items())
        yield Trouble(
            f"{parts} {subject.unit} = {sum(wanted.values())}, but {hardware.nodes} × {hardware.ray_gpus_per_node} = "
            f"{there} are there",
            key_of("engine" if "engine" in wanted else next(iter(wanted))),
            (f"roles.rollout.engines={room}",) if room >= 1 else (),
        )


@rule("P102", "error")
def bundle_larger_than_node(subject: Subject) -> Iterator[Trouble]:
    """A learner bundle asks for more GPUs than one node has.

    Each entry of `roles.learner.gpus` is one indivisible bundle on one node. Split it over several entries.
    """
    size = subject.layout.hardware_of("learner").ray_gpus_per_node
    for index, wanted in enumerate(subject.layout.roles.learner.gpus):
        if wanted > size:
            yield Trouble(
                f"learner bundle {index} wants {wanted} {subject.unit}, a node has {size}", "roles.learner.gpus"
            )


@rule("P103", "error")
def more_bundles_than_nodes(subject: Subject) -> Iterator[Trouble]:
    """There are more learner bundles than nodes.

    Learner bundles are placed with STRICT_SPREAD: each on a node of its own. The list may be shorter than the number
    of nodes (the nodes left over hold engines), never longer.
    """
    gpus, nodes = subject.layout.roles.learner.gpus, subject.layout.hardware_of("learner").nodes
    if len(gpus) > nodes:
        yield Trouble(f"{len(gpus)} learner bundles need {len(gpus)} nodes, {nodes} are there", "roles.learner.gpus")


@rule("P104", "error")
def engine_larger_than_node(subject: Subject) -> Iterator[Trouble]:
    """One engine spans more GPUs than a node has.

    An engine's GPUs must sit on one node: tensor parallelism over the network would be slower than one GPU.
    """
    layout = subject.layout
    size, wanted = layout.hardware_of("rollout").ray_gpus_per_node, layout.roles.rollout.tensor_parallel
    if wanted > size and not layout.roles.rollout.pool:
        yield Trouble(
            f"tensor_parallel {wanted} is larger than a node of {size} {subject.unit}",
            "roles.rollout.tensor_parallel",
            (f"roles.rollout.tensor_parallel={widest(size, layout.roles.learner.model)}",) if size else (),
        )


@rule("P105", "error")
def no_room(subject: Subject) -> Iterator[Trouble]:
    """The totals fit, the shapes do not: some bundles find no node with enough free GPUs.

    Bundles are indivisible. With 3 GPUs free on each of 8 nodes, an engine of tensor parallel 4 fits nowhere although
    24 GPUs are free, and Ray would wait for ever.
    """
    layout, placement = subject.layout, subject.placement
    if overbooked(layout) > 0:
        return
    missing = Counter(each.role for each in placement.unplaced if each.reason in ("no_room", "too_few_nodes"))
    for role, count in missing.items():
        if role == "learner" and len(layout.roles.learner.gpus) > layout.hardware_of("learner").nodes:
            continue  # P103 has said so
        slots = next(each.slots for each in placement.unplaced if each.role == role)
        group = next(group for group in groups(layout) if group.role == role)
        placed = len(group.slots) - count
        key = key_of(role)
        yield Trouble(
            f"{count} of {len(group.slots)} {role} bundles of {slots} {subject.unit} find no node with room, though "
            f"{placement.free_slots} {subject.unit} are free in all",
            key,
            (f"{key}={placed}",) if placed and role in SIDE_BY_SIDE else (),
        )


@rule("P106", "warning")
def idle_slots(subject: Subject) -> Iterator[Trouble]:
    """Some GPUs have no role.

    They are allocated, paid for and idle. Where they can hold further engines, that is offered as the fix.
    """
    placement, rollout = subject.placement, subject.layout.roles.rollout
    idle = placement.stranded_because("no_role")
    if placement.unplaced or not idle:
        return
    room = _further_engines(subject) if not rollout.pool else 0
    yield Trouble(
        f"{idle} of {placement.total_slots} {subject.unit} have no role",
        "roles.rollout.engines",
        (f"roles.rollout.engines={rollout.engines + room}",) if room else (),
    )


def _further_engines(subject: Subject) -> int:
    layout, width = subject.layout, subject.layout.roles.rollout.tensor_parallel
    parts = [number for number, part in enumerate(layout.hardware.parts) for _ in range(part.nodes)]
    home = layout.hardware.part_of("rollout")
    idle = [each for each in subject.placement.stranded if each.reason == "no_role"]
    return sum(each.slots // width for each in idle if parts[each.node] == home)


@rule("P107", "error")
def too_few_cpus(subject: Subject) -> Iterator[Trouble]:
    """Ray has fewer CPU cores on a node than the roles placed there reserve.

    GPUs that fit are no help when the CPUs of their bundles do not: the job would hang with free GPUs.
    """
    stuck = [each for each in subject.placement.unplaced if each.reason == "no_cpus"]
    if stuck:
        number = next(part_of(subject.layout, group) for group in groups(subject.layout) if group.role == stuck[0].role)
        hardware = subject.layout.hardware.parts[number]
        key = f"{part_key(subject.layout, number)}.cpus_per_node"
        yield settled_by(
            f"{len(stuck)} bundles ({stuck[0].role} {stuck[0].index} first) find GPUs but no CPU cores: Ray is given "
            f"{hardware.ray_cpus_per_node} cores a node for {hardware.ray_gpus_per_node} {subject.unit}",
            key,
            hardware.gpus_per_node + 1,
        )


@rule("P121", "warning")
def stranded_slots(subject: Subject) -> Iterator[Trouble]:
    """GPUs are left over in pieces that are too small for an engine.

    With one learner on each node of four, three GPUs are left on each: one engine of tensor parallel 2 and one GPU that
    nothing can use, a quarter of the cluster. Fewer, fuller learner nodes leave whole nodes for engines.
    """
    placement, layout = subject.placement, subject.layout
    stranded = placement.stranded_because("too_few_for_an_engine")
    if stranded and not placement.unplaced:
        total = placement.total_slots
        yield Trouble(
            f"{stranded} of {total} {subject.unit} ({100 * stranded // total} %) are free in pieces smaller than an "
            f"engine of tensor_parallel {layout.roles.rollout.tensor_parallel}",
            "roles.learner.gpus",
        )


@rule("P122", "error")
def served_larger_than_node(subject: Subject) -> Iterator[Trouble]:
    """The teacher, or judge, spans more GPUs than a node has; like an engine, it must sit on one node."""
    for name, served in subject.roles(*SERVED):
        size = subject.layout.hardware_of(name).ray_gpus_per_node
        if not served.pool and served.tensor_parallel > size:
            key = f"roles.{name}.tensor_parallel"
            yield Trouble(
                f"{name} tensor_parallel {served.tensor_parallel} is larger than a node of {size} {subject.unit}",
                key,
                (f"{key}={widest(size, served.model)}",) if size else (),
            )


@rule("P123", "error")
def nothing_for_ray(subject: Subject) -> Iterator[Trouble]:
    """Servers outside Ray hold all GPUs of every node.

    `hardware.gpus_outside_ray` is subtracted from what Ray may hand out; nothing would be left for training.
    """
    hardware = subject.layout.hardware
    if hardware.ray_gpus_per_node == 0:
        yield settled_by(
            f"{hardware.gpus_outside_ray} of {hardware.gpus_per_node} {subject.unit} of each node are outside Ray: "
            "none is left",
            "hardware.gpus_outside_ray",
            0,
        )


@rule("P124", "warning")
def teacher_counted_twice(subject: Subject) -> Iterator[Trouble]:
    """There is a teacher inside Ray and a server outside it.

    A teacher that is started by hand beside Ray is described by `hardware.gpus_outside_ray` alone. With a teacher role
    as well, its GPUs are reserved twice.
    """
    hardware, teacher = subject.layout.hardware, subject.layout.roles.teacher
    if hardware.gpus_outside_ray and teacher is not None:
        yield settled_by(
            f"{hardware.gpus_outside_ray} {subject.unit} a node are outside Ray, and the teacher role asks Ray for "
            f"{teacher.engines * teacher.tensor_parallel} more",
            "hardware.gpus_outside_ray",
            0,
        )


@rule("P125", "error")
def reward_cpus(subject: Subject) -> Iterator[Trouble]:
    """The reward workers ask for more CPU cores than the bundles leave, or for more at once than any node has left."""
    layout, reward = subject.layout, subject.layout.roles.reward
    if reward is None:
        return
    each, left = reward.cpus_per_worker, _cores_left(subject)
    room, wanted = sum(cores // each for cores in left), layout.num_reward_workers
    if wanted <= room:
        return
    cpus = layout.hardware.gpus_per_node + 1 + -(-wanted // layout.hardware.nodes) * each
    torn = f" in pieces that hold {room}" if sum(left) >= wanted * each else ""
    yield Trouble(
        f"{wanted} reward workers × {each} cores = {wanted * each}, {sum(left)} are left beside the GPU bundles{torn}",
        "roles.reward.workers",
        (f"roles.reward.workers={room}",)
        if layout.hardware.cpus_per_node and room
        else (f"hardware.cpus_per_node={cpus}",),
    )


def _cores_left(subject: Subject) -> list[int]:
    """CPU cores of each node that Ray has beside the bundles; a pool keeps those of its idle GPUs."""
    free = Counter[int]()
    for each in subject.placement.stranded:
        free[each.node] += each.slots if each.reason != "idle_in_pool" else 0
    nodes = (part for part in subject.layout.hardware.parts for _ in range(part.nodes))
    return [
        max(0, part.ray_cpus_per_node - (part.ray_gpus_per_node - free[number]) * CPUS_PER_GPU)
        for number, part in enumerate(nodes)
    ]
