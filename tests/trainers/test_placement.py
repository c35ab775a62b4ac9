"""Seats of the roles, and what is said when they are not to be had or not where they were planned."""

from __future__ import annotations

import sys
import types
from dataclasses import replace

import pytest
from trainer_support import LAYOUT

from rltui.layout.load import load_layout
from rltui.placement.bundles import Group, reward_groups
from trainers.placement import (
    FreeNode,
    PlacementError,
    PlannedRole,
    ProcessLocation,
    actor_resources,
    drawn_nodes,
    guest_cards,
    planned_roles,
    unplaced,
    verify,
)
from trainers.roles.card import visible_cards
from trainers.weight_sync import colocated_learners

pytestmark = pytest.mark.trainers

PLANNED = [
    PlannedRole("learner 0", "learner", 0, "learner", 0, 0, 1),
    PlannedRole("learner 1", "learner", 1, "learner", 1, 0, 1),
    PlannedRole("engine 0", "engine", 0, "engine", 0, 0, 2),
]
NODES = {("learner", 0): "node-a", ("learner", 1): "node-b", ("engine", 0): "node-a"}
FOUND = [
    ProcessLocation(1, "a", "10.0.0.1", "node-a", ("0",)),
    ProcessLocation(2, "b", "10.0.0.2", "node-b", ("0",)),
    ProcessLocation(3, "a", "10.0.0.1", "node-a", ("2", "3")),
]


def test_ranks_fill_the_bundles_in_order() -> None:
    words = ["hardware.nodes=2", "hardware.gpus_per_node=8", "roles.learner.gpus=[3, 1]"]
    words += ["roles.rollout.engines=2", "roles.rollout.tensor_parallel=2"]
    planned = planned_roles(load_layout(LAYOUT, words).layout)
    assert [(plan.name, plan.bundle, plan.slots) for plan in planned] == [
        ("learner 0", 0, 1), ("learner 1", 0, 1), ("learner 2", 0, 1), ("learner 3", 1, 1),
        ("engine 0", 0, 2), ("engine 1", 1, 2),
    ]  # fmt: skip


def test_reward_workers_take_cpus_beside_the_bundles_and_no_card() -> None:
    words = ["hardware.gpu=H100-SXM-80GB", "roles.reward={workers: 2, cpus_per_worker: 3}"]
    planned = planned_roles(load_layout(LAYOUT, words).layout)
    assert [(plan.name, plan.group, plan.bundle, plan.slots) for plan in planned[-2:]] == [
        ("reward 0", "reward", 0, 3), ("reward 1", "reward", 1, 3),
    ]  # fmt: skip
    found = [ProcessLocation(n, "a", "10.0.0.1", "node", (str(n),) if n < 3 else ()) for n in range(5)]
    nodes = {(plan.group, plan.bundle): "node" for plan in planned}
    verify(planned, nodes, found, on_cpu=False)
    with pytest.raises(PlacementError, match="reward 1 is on b"):
        verify(planned, nodes, [*found[:-1], replace(found[-1], host="b", node_id="other")], on_cpu=False)
    none = [plan.role for words in (["data.reward=http"], ["roles.reward.workers=0"])
            for plan in planned_roles(load_layout(LAYOUT, ["roles.reward={workers: 2}", *words]).layout)]  # fmt: skip
    assert "reward" not in none
    message = unplaced(reward_groups(load_layout(LAYOUT, words).layout)[0], True, {"a": {"CPU": 1.0}}, 5)
    assert "wanted 2 (3 CPU, 3 CPU)" in message
    assert "fewer in roles.reward" in message


POOLED = ["pools={all: {gpus: [2, 2]}}", "hardware.nodes=2", "roles.learner.gpus=[]", "roles.learner.pool=all"]
POOLED += ["roles.rollout.engines=0", "roles.rollout.pool=all", "roles.rollout.tensor_parallel=2"]


def test_colocated_roles_are_guests_of_the_learners_slots() -> None:
    planned = planned_roles(load_layout(LAYOUT, [*POOLED, "roles.reference={}"]).layout)
    assert [(s.name, s.group, s.bundle, s.offset, s.slots, s.is_guest) for s in planned] == [
        ("learner 0", "pool all", 0, 0, 1, False), ("learner 1", "pool all", 0, 1, 1, False),
        ("learner 2", "pool all", 1, 0, 1, False), ("learner 3", "pool all", 1, 1, 1, False),
        ("engine 0", "pool all", 0, 0, 2, True), ("engine 1", "pool all", 1, 0, 2, True),
        ("reference 0", "pool all", 0, 0, 1, True), ("reference 1", "pool all", 0, 1, 1, True),
        ("reference 2", "pool all", 1, 0, 1, True), ("reference 3", "pool all", 1, 1, 1, True),
    ]  # fmt: skip


def test_engines_on_the_learners_slots_get_their_weights_from_them_alone() -> None:
    assert colocated_learners(planned_roles(load_layout(LAYOUT, POOLED).layout)) == {
        "engine 0": ("learner 0", "learner 1"), "engine 1": ("learner 2", "learner 3"),
    }  # fmt: skip
    apart = ["hardware.gpus_per_node=8", "roles.learner.gpus=[2]", "roles.rollout.engines=2"]
    assert colocated_learners(planned_roles(load_layout(LAYOUT, apart).layout)) == {}


def test_guests_are_told_the_cards_of_the_hosts_whose_slots_they_share() -> None:
    planned = planned_roles(load_layout(LAYOUT, POOLED).layout)
    cards = {"learner 0": ("3",), "learner 1": ("1",), "learner 2": ("0",), "learner 3": ("2",)}
    found = {name: ProcessLocation(1, "a", "10.0.0.1", "node", ids) for name, ids in cards.items()}
    engines = [plan for plan in planned if plan.role == "engine"]
    assert [guest_cards(plan, planned, found) for plan in engines] == [("3", "1"), ("0", "2")]
    with pytest.raises(PlacementError, match="engine 0 shares slots of pool all that no other role works on"):
        guest_cards(replace(engines[0], offset=1), planned, found)


def test_slots_are_gpus_or_cpus_on_the_same_path() -> None:
    assert actor_resources(2, on_cpu=True) == {"num_cpus": 2}
    assert actor_resources(2, on_cpu=False) == {"num_gpus": 2, "num_cpus": 2}
    assert actor_resources(0, on_cpu=False) == actor_resources(0, on_cpu=True) == {"num_cpus": 0}


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


SHARED = [
    PlannedRole("learner 0", "learner", 0, "pool all", 0, 0, 1),
    PlannedRole("learner 1", "learner", 1, "pool all", 0, 1, 1),
    PlannedRole("engine 0", "engine", 0, "pool all", 0, 0, 2, is_guest=True),
    PlannedRole("critic 0", "critic", 0, "pool value", 0, 0, 1),
    PlannedRole("reference 0", "reference", 0, "pool value", 0, 0, 1, is_guest=True),
    PlannedRole("teacher 0", "teacher", 0, "teacher", 0, 0, 2),
]
CARDS = [("GPU-a",), ("GPU-b",), ("GPU-a", "GPU-b"), ("GPU-c",), ("GPU-c",), ("GPU-d", "GPU-e")]


def test_cards_are_compared_by_uuid_for_every_kind_of_role() -> None:
    nodes = {(plan.group, plan.bundle): "node" for plan in SHARED}

    def check(changed: dict[int, tuple[str, ...]]) -> None:
        found = [
            ProcessLocation(
                1,
                "a",
                "10.0.0.1",
                "node",
                () if plan.is_guest else tuple(f"{plan.name} {slot}" for slot in range(plan.slots)),
                changed.get(number, CARDS[number]),
            )
            for number, plan in enumerate(SHARED)
        ]
        verify(SHARED, nodes, found, on_cpu=False)

    check({})
    check(dict.fromkeys(range(len(SHARED)), ()))  # no driver to ask: Ray's numbers must do
    for changed, message in [
        ({1: ("GPU-a",), 2: ("GPU-a", "GPU-a")}, "learner 0 and learner 1 both work on GPU-a of a"),
        ({2: ("GPU-b", "GPU-a")}, "engine 0 works on GPU-b, GPU-a, planned was GPU-a of learner 0, GPU-b of learner 1"),
        ({4: ("GPU-a",)}, "reference 0 works on GPU-a, planned was GPU-c of critic 0"),
        ({5: ("GPU-d", "GPU-c")}, "critic 0 and teacher 0 both work on GPU-c of a"),
        ({3: ()}, "critic 0 sees the cards none of a instead of 1"),
        ({5: ("GPU-d",)}, "teacher 0 sees the cards GPU-d of a instead of 2"),
    ]:
        with pytest.raises(PlacementError, match=message):
            check(changed)


NVML = """
class NVMLError(Exception): pass
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 3
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetUUID(handle): return f"GPU-{handle}"
"""


@pytest.mark.parametrize(
    ("visible", "cards"),
    [(None, ("GPU-0", "GPU-1", "GPU-2")), ("2,0", ("GPU-2", "GPU-0")), ("", ()), ("GPU-x, 1", ("GPU-x", "GPU-1"))],
)
def test_a_process_knows_its_cards_without_opening_them(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, cards: tuple[str, ...]
) -> None:
    module = types.ModuleType("pynvml")
    exec(NVML, module.__dict__)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_cards() == cards


def test_what_found_no_place_is_said_with_its_shape_and_what_is_free() -> None:
    free = {"nid1 (10.0.0.1)": {"GPU": 1.0, "CPU": 60.0, "memory": 1e9}, "nid2 (10.0.0.2)": {"CPU": 3.0}}
    text = unplaced(Group("learner", (2, 1), "STRICT_SPREAD"), False, free, 300.4)
    assert "learner bundles found no place within 300 s: wanted 2 (2 GPU + 2 CPU, 1 GPU + 1 CPU)" in text
    assert "each on a node of its own; free now: nid1 (10.0.0.1): 1 GPU + 60 CPU; nid2 (10.0.0.2): 3 CPU." in text
    assert text.endswith("Wait for GPUs to become free, or ask for fewer in roles.learner.gpus")
    assert "no node is alive" in unplaced(Group("engine", (1,), "PACK"), True, {}, 1.0)


def test_a_drawn_node_is_the_first_one_that_has_its_room() -> None:
    words = ["hardware.nodes=2", "hardware.gpus_per_node=2", "roles.learner.gpus=[2]", "roles.rollout.engines=1"]
    layout = load_layout(LAYOUT, words).layout
    whole, half, none = ({"CPU": cores} for cores in (8.0, 1.0, 0.0))
    homes = {("learner", 0): "b", ("engine", 0): "c"}
    assert drawn_nodes(layout, [FreeNode("a", "a", none), FreeNode("b", "b", whole), FreeNode("c", "c", half)]) == homes
    assert drawn_nodes(layout, [FreeNode("c", "c", half), FreeNode("b", "b", whole)]) == homes


def test_where_the_drawing_does_not_fit_ray_chooses() -> None:
    words = ["hardware.nodes=2", "hardware.gpus_per_node=2", "roles.learner.gpus=[2]", "roles.rollout.engines=1"]
    layout = load_layout(LAYOUT, words).layout
    assert not drawn_nodes(layout, [FreeNode("a", "a", {"CPU": 8.0})])
    assert not drawn_nodes(layout, [FreeNode(name, name, {"CPU": 1.0}) for name in "abc"])
    assert not drawn_nodes(layout, [FreeNode(name, name, {}) for name in "abc"])
    too_many = load_layout(LAYOUT, [*words, "roles.rollout.engines=4"]).layout
    assert not drawn_nodes(too_many, [FreeNode(name, name, {"CPU": 8.0}) for name in "abc"])


def test_a_drawn_node_is_of_its_roles_kind() -> None:
    kinds = "hardware.more={rollouts: {roles: [rollout], nodes: 1, gpus_per_node: 2}}"
    layout = load_layout(LAYOUT, [kinds, "hardware.gpus_per_node=2", "roles.learner.gpus=[2]"]).layout
    room = {"CPU": 8.0}
    nodes = [FreeNode("engines", "a", room, part=1), FreeNode("learners", "b", room, part=0)]
    assert drawn_nodes(layout, nodes) == {("learner", 0): "learners", ("engine", 0): "engines"}
    assert not drawn_nodes(layout, [replace(node, part=0) for node in nodes])
