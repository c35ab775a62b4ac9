"""Host memory of a layout's fullest node: every role that the simulated placement puts there."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.layout.roles import SERVED
from rltui.memory.from_layout import learner_training, sharding_of, states_of
from rltui.memory.host import PROCESS_GIB, SHM_PER_PROCESS_GIB, estimate_host

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rltui.hardware.architecture import Architecture
    from rltui.layout.schema import Layout
    from rltui.memory.estimate import HostEstimate
    from rltui.placement.result import Seat


def fullest_node(
    layout: Layout, model: Architecture, critic: Architecture | None, seats: Iterable[Seat]
) -> HostEstimate:
    """Host memory of the node that needs most.

    Args:
        layout: The layout.
        model: The learner's model, which the engines serve too.
        critic: The critic's; None: there is none, or it is not known.
        seats: Where the placement puts every role.
    """
    found = [_node(layout, model, critic, Counter(dict(node))) for node in _distinct_nodes(seats)]
    return max(found, key=lambda host: host.ram_gib)


def _distinct_nodes(seats: Iterable[Seat]) -> set[tuple[tuple[str, int], ...]]:
    """Processes of each role by node, equal nodes once; an empty node where nothing finds a place."""
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for seat in seats:
        node = counts[seat.node]
        node[f"{seat.role} seats"] += 1
        node[seat.role] += len(seat.slots)
    return {tuple(sorted(node.items())) for node in counts.values()} or {()}


def _node(layout: Layout, model: Architecture, critic: Architecture | None, node: Counter[str]) -> HostEstimate:
    training = learner_training(layout)
    host = estimate_host(
        model,
        training.sharding,
        training.states,
        learners=node["learner"],
        engines=node["engine seats"],
        engine_gpus=node["engine"] + sum(node[role] for role in SERVED),
        # vLLM drops its weights (level 2: the learner sends them again); transformers moves them to host memory
        sleeping=layout.roles.rollout.sleep_while_training and layout.roles.rollout.engine == "hf",
        adapter=training.adapter,
        freeze_vision=training.freeze_vision,
    )
    role, ranks = layout.roles.critic, node["critic"]
    if critic is None or role is None:
        return host
    more = estimate_host(
        critic, sharding_of(layout, "critic"), states_of(role, layout.system), learners=ranks
    ).ram_parts_gib
    parts = dict(host.ram_parts_gib)
    parts["processes"] += PROCESS_GIB * ranks
    for name in ("loading", "offload"):
        if name in more:
            parts[name] = parts.get(name, 0.0) + more[name]
    return structs.replace(host, ram_parts_gib=parts, shm_gib=host.shm_gib + SHM_PER_PROCESS_GIB * ranks)
