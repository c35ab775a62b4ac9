"""Seats of the roles, and what is said when they are not to be had or not where they were planned."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trainer_support import LAYOUT

from rltui.layout.load import load_layout
from rltui.placement.bundles import Group
from trainers.placement import PlacementError, Seat, Whereabouts, actor_resources, seats, unplaced, verify

pytestmark = pytest.mark.trainers

PLANNED = [Seat("learner 0", "learner", 0, 1), Seat("learner 1", "learner", 1, 1), Seat("engine 0", "engine", 0, 2)]
NODES = {("learner", 0): "node-a", ("learner", 1): "node-b", ("engine", 0): "node-a"}
FOUND = [
    Whereabouts(1, "a", "10.0.0.1", "node-a", ("0",)),
    Whereabouts(2, "b", "10.0.0.2", "node-b", ("0",)),
    Whereabouts(3, "a", "10.0.0.1", "node-a", ("2", "3")),
]


def test_ranks_fill_the_bundles_in_order() -> None:
    words = ["hardware.nodes=2", "hardware.gpus_per_node=8", "roles.learner.gpus=[3, 1]"]
    words += ["roles.rollout.engines=2", "roles.rollout.tensor_parallel=2"]
    planned = seats(load_layout(LAYOUT, words).layout)
    assert [(seat.name, seat.bundle, seat.slots) for seat in planned] == [
        ("learner 0", 0, 1), ("learner 1", 0, 1), ("learner 2", 0, 1), ("learner 3", 1, 1),
        ("engine 0", 0, 2), ("engine 1", 1, 2),
    ]  # fmt: skip


def test_slots_are_gpus_or_cpus_on_the_same_path() -> None:
    assert actor_resources(2, on_cpu=True) == {"num_cpus": 2}
    assert actor_resources(2, on_cpu=False) == {"num_gpus": 2, "num_cpus": 2}


def test_roles_in_their_places_are_fine() -> None:
    verify(PLANNED, NODES, FOUND, on_cpu=False)
    verify(PLANNED, NODES, [replace(place, gpu_ids=()) for place in FOUND], on_cpu=True)


@pytest.mark.parametrize(
    ("nodes", "changed", "message"),
    [
        (NODES, {1: {"node_id": "node-a"}}, r"learner 1 is on b \(node-a\), its bundle on node-b"),
        ({**NODES, ("learner", 1): "node-a"}, {1: {"node_id": "node-a"}}, "two learner bundles share a node"),
        (NODES, {2: {"gpu_ids": ("0", "3")}}, "learner 0 and engine 0 share GPU 0 of a"),
        (NODES, {2: {"gpu_ids": ("2",)}}, "engine 0 has 1 GPUs instead of 2"),
        (NODES, {0: {"gpu_ids": ()}}, "learner 0 has 0 GPUs instead of 1"),
    ],
)
def test_every_difference_from_the_plan_is_named(
    nodes: dict[tuple[str, int], str], changed: dict[int, dict[str, object]], message: str
) -> None:
    found = [replace(place, **changed.get(number, {})) for number, place in enumerate(FOUND)]  # type: ignore[arg-type]
    with pytest.raises(PlacementError, match=message):
        verify(PLANNED, nodes, found, on_cpu=False)


def test_what_found_no_place_is_said_with_its_shape_and_what_is_free() -> None:
    free = {"nid1 (10.0.0.1)": {"GPU": 1.0, "CPU": 60.0, "memory": 1e9}, "nid2 (10.0.0.2)": {"CPU": 3.0}}
    text = unplaced(Group("learner", (2, 1), "STRICT_SPREAD"), False, free, 300.4)
    assert "learner bundles found no place within 300 s: wanted 2 (2 GPU + 2 CPU, 1 GPU + 1 CPU)" in text
    assert "each on a node of its own; free now: nid1 (10.0.0.1): 1 GPU + 60 CPU; nid2 (10.0.0.2): 3 CPU." in text
    assert text.endswith("Wait for GPUs to become free, or ask for fewer in roles.learner.gpus")
    assert "no node is alive" in unplaced(Group("engine", (1,), "PACK"), True, {}, 1.0)
