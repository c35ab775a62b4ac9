"""The answer of a placement: who sits where, what found no place, and which GPUs are left over, with the reason."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

UnplacedReason = Literal["node_too_small", "too_few_nodes", "no_cpus", "no_room", "pool_too_small"]
StrandedReason = Literal["no_role", "too_few_for_an_engine", "no_cpus", "idle_in_pool"]

UNPLACED_WORDS: dict[UnplacedReason, str] = {
    "node_too_small": "no node is that large",
    "too_few_nodes": "each needs a node of its own, and there are no more nodes with room",
    "no_cpus": "GPUs are free, but no CPU cores beside them",
    "no_room": "no node has that many free at once",
    "pool_too_small": "the pool holds no more of them",
}
STRANDED_WORDS: dict[StrandedReason, str] = {
    "no_role": "no role asks for them",
    "too_few_for_an_engine": "fewer than one engine needs are free on the node",
    "no_cpus": "the node's CPU cores are all taken",
    "idle_in_pool": "their pool is reserved, but no role in it uses them",
}


class RoleInstance(Struct, frozen=True):
    """One instance of a role on its node.

    Attributes:
        role: ``learner``, ``engine``, ``reference``, ``critic`` or one of ``SERVED``.
        index: Number of the bundle (learner, reference, critic) or of the engine or served model.
        node: The node's number.
        slots: Its slot numbers on that node; colocated roles have the same ones.
        pool: The pool that it shares, or empty.
    """

    role: str
    index: int
    node: int
    slots: tuple[int, ...]
    pool: str = ""


class UnplacedBundle(Struct, frozen=True):
    """A bundle that fits nowhere: its role, its number, how many slots it wants, and why it has none."""

    role: str
    index: int
    slots: int
    reason: UnplacedReason

    @property
    def words(self) -> str:
        """Why Ray found no place for it, in words for people."""
        return UNPLACED_WORDS[self.reason]


class Stranded(Struct, frozen=True):
    """GPUs of one node that nobody uses, and why."""

    node: int
    slots: int
    reason: StrandedReason


class Placement(Struct, frozen=True, rename={"instances": "seats", "unplaced": "homeless"}):
    """The answer; ``rename`` keeps the words of its JSON form.

    Attributes:
        nodes: Number of nodes.
        slots_per_node: GPUs (or CPU slots) of each node; of the largest where they differ.
        instances: Every role instance that has a place.
        unplaced: Bundles that fit nowhere.
        stranded: GPUs that nobody uses, by node.
        outside_ray: GPUs of each node of the first kind, the last ones, that Ray does not manage.
        slots: GPUs (or CPU slots) of each node, where the layout has nodes of several kinds; else empty.
    """

    nodes: int
    slots_per_node: int
    instances: tuple[RoleInstance, ...]
    unplaced: tuple[UnplacedBundle, ...] = ()
    stranded: tuple[Stranded, ...] = ()
    outside_ray: int = 0
    slots: tuple[int, ...] = ()

    def slots_of(self, node: int) -> int:
        """GPUs (or CPU slots) of ``node``."""
        return self.slots[node] if self.slots else self.slots_per_node

    @property
    def total_slots(self) -> int:
        """GPUs (or CPU slots) of all nodes together."""
        return sum(self.slots) if self.slots else self.nodes * self.slots_per_node

    @property
    def free_slots(self) -> int:
        """Slots that no role uses."""
        return sum(each.slots for each in self.stranded)

    def stranded_because(self, reason: StrandedReason) -> int:
        """Slots that no role uses for ``reason``."""
        return sum(each.slots for each in self.stranded if each.reason == reason)


def as_json(placement: Placement | None) -> dict[str, Any] | None:
    """The JSON form: ``slots_per_node`` where all nodes are alike, else ``slots``, a list with an entry a node."""
    if placement is None:
        return None
    values: dict[str, Any] = msgspec.to_builtins(placement)
    del values["slots_per_node" if placement.slots else "slots"]
    return values
