"""The nodes × GPUs picture of a placement, as plain lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltui.layout.schema import Layout
    from rltui.placement.simulate import Placement

LETTERS = {"learner": "L", "engine": "E"}
MAX_NODES = 32
FREE = "··"


def draw(layout: Layout, placement: Placement) -> tuple[str, ...]:
    """Lines such as ``node0 ┃ L0 ┃ L0 ┃ E0 ┃ ·· ┃``, with a legend below; at most ``MAX_NODES`` nodes are drawn."""
    cells = {(seat.node, slot): f"{LETTERS[seat.role]}{seat.index}" for seat in placement.seats for slot in seat.slots}
    width = max([2, *map(len, cells.values())])
    label = len(f"node{placement.nodes - 1}")
    lines = []
    for node in range(min(placement.nodes, MAX_NODES)):
        row = [cells.get((node, slot), FREE).ljust(width) for slot in range(min(placement.slots_per_node, 16))]
        lines.append(f"{f'node{node}':<{label}} ┃ " + " ┃ ".join(row) + " ┃")
    if placement.nodes > MAX_NODES:
        lines.append(f"… {placement.nodes - MAX_NODES} more nodes")
    return (*lines, *_legend(layout, placement))


def _legend(layout: Layout, placement: Placement) -> list[str]:
    learner, rollout = layout.roles.learner, layout.roles.rollout
    unit = "CPU slot" if layout.hardware.on_cpu else layout.hardware.gpu
    lines = [
        f"L learner  {learner.model}, ZeRO-{learner.zero_stage}, {learner.precision}, {learner.num_learners} ranks",
        f"E engine   {rollout.engine}, tensor parallel {rollout.tensor_parallel}, {rollout.precision}",
        f"each cell is one {unit}; {placement.free_slots} free",
    ]
    return lines + [f"no room for {role} {index} ({slots} slots)" for role, index, slots in placement.homeless]
