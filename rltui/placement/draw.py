"""The nodes × GPUs picture of a placement, as plain lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rltui.layout.roles import SERVED, RewardModel, Served, effective_stage
from rltui.layout.scalars import UNNAMED_GPU
from rltui.layout.schema import Critic, Layout, Learner, Rollout
from rltui.placement.result import STRANDED_WORDS, Placement, RoleInstance

LETTERS = {
    "learner": "L",
    "reference": "R",
    "critic": "C",
    "teacher": "T",
    "judge": "J",
    "reward_model": "M",
    "engine": "E",
}
WALL = "┃"
"""Between the cells of the picture; nothing else of it has one."""
MAX_NODES = 32
MAX_SLOTS = 16
FREE = "··"
OUTSIDE = "××"


def draw(layout: Layout, placement: Placement) -> tuple[str, ...]:
    """Lines such as ``node0 ┃ L0 ┃ L0 ┃ E0 ┃ ·· ┃``, with a legend below; at most ``MAX_NODES`` nodes are drawn.

    A GPU that roles share shows all their letters and the number of its engine: ``LRE3``.
    """
    cells, kinds = _cells(layout, placement), _kinds(layout)
    width = max([2, *map(len, cells.values())])
    label = len(f"node{placement.nodes - 1}")
    lines = []
    for node in range(min(placement.nodes, MAX_NODES)):
        slots = range(min(placement.slots_of(node), MAX_SLOTS))
        row = [cells.get((node, slot), FREE).ljust(width) for slot in slots]
        lines.append(f"{f'node{node}':<{label}} {WALL} {f' {WALL} '.join(row)} {WALL}{kinds[node] if kinds else ''}")
    if placement.nodes > MAX_NODES:
        lines.append(f"… {placement.nodes - MAX_NODES} more nodes")
    return (*lines, *_legend(layout, placement))


def _kinds(layout: Layout) -> list[str]:
    """What stands behind the row of each node where they are of several kinds: its card and the kind's name."""
    if not layout.hardware.more:
        return []
    names = ["", *(f" ({name})" for name in layout.hardware.more)]
    return [
        f" {part.gpu}{name}"
        for part, name in zip(layout.hardware.parts, names, strict=True)
        for _ in range(min(part.nodes, MAX_NODES))
    ]


def _cells(layout: Layout, placement: Placement) -> dict[tuple[int, int], str]:
    """Text by (node, slot) of the nodes that are drawn."""
    sharing: dict[tuple[int, int], list[RoleInstance]] = {}
    for one in placement.instances:
        if one.node < MAX_NODES:
            for slot in one.slots:
                sharing.setdefault((one.node, slot), []).append(one)
    cells = {place: _cell(there) for place, there in sharing.items()}
    first_outside = layout.hardware.gpus_per_node - placement.outside_ray
    for node in range(min(layout.hardware.nodes, MAX_NODES)):
        cells |= {(node, slot): OUTSIDE for slot in range(first_outside, layout.hardware.gpus_per_node)}
    return cells


def _cell(there: list[RoleInstance]) -> str:
    order = list(LETTERS)
    there = sorted(there, key=lambda one: order.index(one.role))
    return "".join(LETTERS[one.role] for one in there) + str(there[-1].index)


def _legend(layout: Layout, placement: Placement) -> list[str]:
    named = (part.gpu if part.gpu != UNNAMED_GPU else "GPU" for part in layout.hardware.parts)
    cards = " or ".join(dict.fromkeys(named))
    unit = "CPU slot" if layout.hardware.on_cpu else cards
    shared = ", shared by the roles in it" if _shares(placement) else ""
    free = f"each cell is one {unit}{shared}"
    if placement.free_slots:
        free += f"; {placement.free_slots} left over"
    if placement.outside_ray:
        free += f"; {OUTSIDE} {placement.outside_ray} a node outside Ray"
    return [*_role_lines(layout), free, *_free_lines(placement), *_unplaced_lines(placement)]


def _shares(placement: Placement) -> bool:
    """Whether any GPU has two roles."""
    taken = Counter((one.node, slot) for one in placement.instances for slot in one.slots)
    return any(count > 1 for count in taken.values())


def _role_lines(layout: Layout) -> Iterator[str]:
    roles, learner, rollout = layout.roles, layout.roles.learner, layout.roles.rollout
    yield f"L learner  {learner.model}, {_training(layout, 'learner')}, {_ranks(layout.num_ranks)}{_in(learner.pool)}"
    if roles.reference is not None:
        yield f"R reference  {roles.reference.model or learner.model}, frozen{_in(roles.reference.pool)}"
    if roles.critic is not None:
        ranks = _ranks(layout.slots_of("critic"))
        model, pool = roles.critic.model or learner.model, _in(roles.critic.pool)
        yield f"C critic   {model}, {_training(layout, 'critic')}, {ranks}{pool}"
    for name in SERVED:
        served: Served | RewardModel | None = getattr(roles, name)
        if served is not None:
            yield f"{LETTERS[name]} {name:<8} {served.model}, {_serving(served)}{_in(served.pool)}"
    yield f"E engine   {_serving(rollout)}{_in(rollout.pool)}"


def _training(layout: Layout, name: str) -> str:
    role: Learner | Critic = getattr(layout.roles, name)
    ways = {way: getattr(role, f"{way}_parallel", 1) for way in ("tensor", "sequence", "pipeline", "expert")}
    cut = "".join(f", {way} parallel {size}" for way, size in ways.items() if size > 1)
    return f"ZeRO-{effective_stage(role)}{cut}, {role.precision}"


def _ranks(count: int) -> str:
    return f"{count} rank{'s' * (count != 1)}"


def _serving(role: Rollout | Served | RewardModel) -> str:
    """``hf`` is the layout's word; people know it as transformers, which splits no layer over GPUs."""
    if role.engine == "hf":
        return f"transformers, {role.precision}"
    return f"{role.engine}, tensor parallel {role.tensor_parallel}, {role.precision}"


def _in(pool: str) -> str:
    return f", pool {pool}" if pool else ""


def _free_lines(placement: Placement) -> Iterator[str]:
    counts = Counter[str]()
    nodes = Counter[str]()
    for each in placement.stranded:
        counts[each.reason] += each.slots
        nodes[each.reason] += 1
    for reason, words in STRANDED_WORDS.items():
        if counts[reason]:
            yield f"{counts[reason]} left over on {nodes[reason]} node{'s' * (nodes[reason] != 1)}: {words}"


def _unplaced_lines(placement: Placement) -> Iterator[str]:
    for each in placement.unplaced[:MAX_NODES]:
        yield f"no room for {each.role} {each.index} ({each.slots} slots): {each.words}"
    if len(placement.unplaced) > MAX_NODES:
        yield f"… no room for {len(placement.unplaced) - MAX_NODES} more"
