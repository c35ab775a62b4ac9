"""A deterministic simulation of how Ray places a layout's bundles on equal nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.placement.bundles import Group, groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.layout.schema import Layout


class Seat(Struct, frozen=True):
    """One bundle on its node: ``role`` and ``index`` name it, ``slots`` are the node's slot numbers it takes."""

    role: str
    index: int
    node: int
    slots: tuple[int, ...]


class Placement(Struct, frozen=True):
    """The answer: seats, and the bundles that found none.

    Attributes:
        nodes: Number of nodes.
        slots_per_node: GPUs (or CPU slots) of each node.
        seats: Every placed bundle.
        homeless: ``(role, index, slots)`` of bundles that fit nowhere.
    """

    nodes: int
    slots_per_node: int
    seats: tuple[Seat, ...]
    homeless: tuple[tuple[str, int, int], ...] = ()

    @property
    def free_slots(self) -> int:
        """Slots that no role uses."""
        return self.nodes * self.slots_per_node - sum(len(seat.slots) for seat in self.seats)


def place(layout: Layout) -> Placement:
    """Simulate the placement of ``layout`` on its own hardware."""
    return simulate(groups(layout), layout.hardware.nodes, layout.hardware.gpus_per_node)


def simulate(wanted: Sequence[Group], nodes: int, slots_per_node: int) -> Placement:
    """Place each group in turn; a group that does not fit leaves its bundles homeless and the next is still tried."""
    free = [slots_per_node] * nodes
    seats: list[Seat] = []
    homeless: list[tuple[str, int, int]] = []
    for group in wanted:
        used: set[int] = set()
        for index, slots in enumerate(group.slots):
            node = _choose(free, slots, used if group.strategy == "STRICT_SPREAD" else set())
            if node is None:
                homeless.append((group.role, index, slots))
                continue
            first = slots_per_node - free[node]
            seats.append(Seat(group.role, index, node, tuple(range(first, first + slots))))
            free[node] -= slots
            used.add(node)
    return Placement(nodes, slots_per_node, tuple(seats), tuple(homeless))


def _choose(free: list[int], slots: int, taken: set[int]) -> int | None:
    """The first node with room that is not in ``taken``."""
    return next((node for node, room in enumerate(free) if room >= slots and node not in taken), None)
