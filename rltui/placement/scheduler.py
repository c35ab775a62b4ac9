"""Ray's placement of bundles on nodes, as its scheduler does it, without Ray.

Sources: ``src/ray/raylet/scheduling/policy/bundle_scheduling_policy.cc`` and ``scorer.cc`` of Ray 2.x. For every bundle
(largest first) Ray takes the node with the highest score, which is the sum over the wanted resources of the share that
would be left of what is free there (``LeastResourceScorer``): the emptiest node. Where nodes score alike, Ray takes any
of them; here it is the one with the lowest number, so that an answer can be repeated.

Nodes with the same free resources are interchangeable, so they are kept in one bucket: the cost of a choice is the
number of different states, not the number of nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from rltui.placement.bundles import CPUS_PER_GPU, Strategy

Free = tuple[int, int]
"""Free slots and free CPU cores of a node."""


class Nodes:
    """Nodes by what is free on them.

    Args:
        on_cpu: Slots are CPU cores themselves: Ray then scores by cores alone.
    """

    def __init__(self, on_cpu: bool) -> None:
        self.on_cpu = on_cpu
        self._buckets: dict[Free, list[int]] = {}

    def put(self, node: int, free: Free) -> None:
        """Add ``node`` with ``free`` resources."""
        heapq.heappush(self._buckets.setdefault(free, []), node)

    def fill(self, numbers: Iterable[int], free: Free) -> None:
        """Add nodes that are all alike; ``numbers`` ascend."""
        self._buckets.setdefault(free, []).extend(numbers)

    def take_best(self, slots: int) -> tuple[int, Free] | None:
        """Remove and return the node that Ray would choose for a bundle of ``slots``, or None where it fits nowhere."""
        best: tuple[float, int] | None = None
        chosen: Free | None = None
        for free, nodes in self._buckets.items():
            score = self._score(slots, free)
            if score >= 0 and (best is None or (score, -nodes[0]) > best):
                best, chosen = (score, -nodes[0]), free
        if chosen is None:
            return None
        bucket = self._buckets[chosen]
        node = heapq.heappop(bucket)
        if not bucket:
            del self._buckets[chosen]
        return node, chosen

    def _score(self, slots: int, free: Free) -> float:
        """The sum of the shares left, or -1 where it does not fit."""
        cpus = slots * CPUS_PER_GPU
        if slots > free[0] or cpus > free[1]:
            return -1.0
        cpu_share = (free[1] - cpus) / free[1] if free[1] else 0.0
        return cpu_share if self.on_cpu else cpu_share + (free[0] - slots) / free[0]


def rest(free: Free, slots: int) -> Free:
    """What is left of ``free`` after a bundle of ``slots``."""
    return free[0] - slots, free[1] - slots * CPUS_PER_GPU


def schedule(nodes: Nodes, bundles: Sequence[int], strategy: Strategy) -> dict[int, int]:
    """Choose a node for each bundle; ``nodes`` is left with what is free after that.

    A group that Ray could not place at all is placed as far as it goes, so that the picture shows what is missing.

    Returns:
        Node by index of the bundle; bundles that fit nowhere are absent.
    """
    return _strict_spread(nodes, bundles) if strategy == "STRICT_SPREAD" else _pack(nodes, bundles)


def _strict_spread(nodes: Nodes, bundles: Sequence[int]) -> dict[int, int]:
    homes: dict[int, int] = {}
    used: list[tuple[int, Free]] = []
    for index in _largest_first(bundles):
        found = nodes.take_best(bundles[index])
        if found is not None:
            homes[index] = found[0]
            used.append((found[0], rest(found[1], bundles[index])))
    # only now: a group takes no node twice under STRICT_SPREAD, but the next group may have it
    for node, free in used:
        nodes.put(node, free)
    return homes


def _pack(nodes: Nodes, bundles: Sequence[int]) -> dict[int, int]:
    waiting: dict[int, list[int]] = {}
    for index in reversed(_largest_first(bundles)):
        waiting.setdefault(bundles[index], []).append(index)
    sizes = sorted(waiting, reverse=True)
    homes: dict[int, int] = {}
    while sizes:
        found = nodes.take_best(sizes[0])
        if found is None:
            sizes.pop(0)
            continue
        node, free = found
        # before it takes another node, Ray fills the best one with all that still fits (BundlePackSchedulingPolicy)
        for size in sizes:
            while waiting[size] and free[0] >= size and free[1] >= size * CPUS_PER_GPU:
                homes[waiting[size].pop()] = node
                free = rest(free, size)
        nodes.put(node, free)
        sizes = [size for size in sizes if waiting[size]]
    return homes


def _largest_first(bundles: Sequence[int]) -> list[int]:
    return sorted(range(len(bundles)), key=lambda index: -bundles[index])
