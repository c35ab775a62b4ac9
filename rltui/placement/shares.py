"""Who sits in the bundles of a group: a learner takes a bundle whole, engines divide it among them."""

from __future__ import annotations

from msgspec import Struct

from rltui.layout.schema import Layout
from rltui.placement.bundles import ROLE_KEYS, SIDE_BY_SIDE, Group


class Share(Struct, frozen=True):
    """One instance of a role inside a bundle: ``width`` slots from ``offset`` on."""

    role: str
    index: int
    offset: int
    width: int


class Shares(Struct, frozen=True):
    """The instances in each bundle of a group, and the engines for which its bundles have no room."""

    bundles: tuple[tuple[Share, ...], ...]
    left_out: tuple[Share, ...] = ()


def shares(layout: Layout, group: Group) -> Shares:
    """Divide the bundles of ``group`` among its members.

    Colocated roles overlap: a reference or critic spans the same slots as the learner, and engines lie side by side
    over them. An engine never spans two bundles, because its GPUs must be on one node.
    """
    bundles: list[list[Share]] = [[] for _ in group.slots]
    left_out: list[Share] = []
    for role in group.members:
        if role in SIDE_BY_SIDE:
            left_out += _side_by_side(layout, group, role, bundles)
        else:
            for index, slots in enumerate(group.slots):
                bundles[index].append(Share(role, index, 0, slots))
    return Shares(tuple(tuple(bundle) for bundle in bundles), tuple(left_out))


def _side_by_side(layout: Layout, group: Group, role: str, bundles: list[list[Share]]) -> list[Share]:
    """Put the engines, teachers or judges into ``bundles``; returns those without room."""
    wanted = layout.num_engines if role == "engine" else getattr(layout.roles, role).engines
    width = getattr(layout.roles, ROLE_KEYS[role]).tensor_parallel
    index = 0
    for bundle, slots in enumerate(group.slots):
        for number in range(min(slots // width, wanted - index)):
            bundles[bundle].append(Share(role, index + number, number * width, width))
        index += min(slots // width, wanted - index)
    return [Share(role, number, 0, width) for number in range(index, wanted)]
