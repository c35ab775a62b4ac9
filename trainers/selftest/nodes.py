"""The nodes and cards of a self-test, and work on them: by Ray, as the trainer's roles come to theirs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rltui.layout.schema import Layout
from trainers.roles.card import visible_cards
from trainers.roles.processes import learner_environment

ANSWER_S = 100.0
"""Most seconds for one answer; the part's own deadline is above it."""
MOST_CPU_SLOTS = 3
"""CPU slots of a node that are worth trying: more would only share its cores."""


@dataclass(frozen=True)
class Node:
    """A node of the job, by Ray's word."""

    id: str
    name: str
    address: str


class Hand:
    """A process on a node that does what it is told."""

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``function`` in this process, which is on the node and cards that were asked for."""
        return function(*arguments)


@dataclass(frozen=True)
class Worker:
    """A hand with its node."""

    node: Node
    actor: Any

    def begin(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Begin ``function`` there; ``answers`` has what it returns."""
        return self.actor.do.remote(function, *arguments)


def join() -> list[Node]:
    """Connect to the Ray of the attempt; returns its nodes, the driver's first.

    Raises:
        ConnectionError: Nothing answers there.
    """
    import ray

    ray.init(address=os.environ["RAY_ADDRESS"], logging_level="WARNING")
    here = ray.get_runtime_context().get_node_id()
    found = [
        Node(node["NodeID"], node["NodeManagerHostname"], node["NodeManagerAddress"])
        for node in ray.nodes()
        if node["Alive"]
    ]
    return sorted(found, key=lambda node: (node.id != here, node.name))


def worker(layout: Layout, node: Node, slots: int = 1, cards: Sequence[str] = ()) -> Worker:
    """A new process on ``node``.

    Args:
        layout: Of the self-test.
        node: Where.
        slots: Cards (or CPU slots) that it has to itself; 0: it only looks around, or shares those of another.
        cards: UUIDs of the cards of another that it shares.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    on_cpu = layout.hardware.on_cpu
    variables = learner_environment(on_cpu)
    if path := os.environ.get("PYTHONPATH"):
        variables["PYTHONPATH"] = path
    if not on_cpu:
        variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if cards:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(cards)
    options: dict[str, Any] = {"num_cpus": slots} if on_cpu else {"num_cpus": 0, "num_gpus": slots}
    options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node.id, soft=False)
    options["runtime_env"] = {"env_vars": variables}
    return Worker(node, ray.remote(Hand).options(**options).remote())


def guest(layout: Layout, host: Worker) -> Worker:
    """A process that shares the cards of ``host``."""
    [cards] = answers([host.begin(visible_cards)]) if not layout.hardware.on_cpu else [()]
    return worker(layout, host.node, 0, cards)


def slots_of(layout: Layout) -> int:
    """Cards of a node that are tried, or CPU slots."""
    there = layout.hardware.ray_gpus_per_node
    return min(there, MOST_CPU_SLOTS) if layout.hardware.on_cpu else there


def answers(begun: Sequence[Any], timeout_s: float = ANSWER_S) -> list[Any]:
    """What the begun calls return.

    Raises:
        ray.exceptions.GetTimeoutError: Not all of them came in time.
    """
    import ray

    return list(ray.get(list(begun), timeout=timeout_s))


def dismiss(workers: Iterable[Worker]) -> None:
    """End their processes, so that their cards are free."""
    import ray

    for one in workers:
        ray.kill(one.actor)
