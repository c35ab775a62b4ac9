"""Where bundles land: worked examples, node by node. (tests/cluster/test_ray_placement.py compares with Ray itself.)"""

from __future__ import annotations

import pytest
from check_cases import GPU, OPD, PPO

from rltui.layout.load import load_text
from rltui.layout.presets import resolve
from rltui.placement.bundles import Group, Strategy, groups, ray_resources
from rltui.placement.draw import draw
from rltui.placement.scheduler import Nodes, schedule
from rltui.placement.simulate import Placement, place


def placed(text: str, *words: str) -> Placement:
    return place(load_text(text, "x.yaml", words).layout)


def nodes_of(placement: Placement, role: str) -> list[int]:
    return [seat.node for seat in placement.instances if seat.role == role]


def picture(text: str, *words: str) -> list[str]:
    layout = load_text(text, "x.yaml", words).layout
    return [line for line in draw(layout, place(layout)) if line.startswith("node")]


def test_groups_are_what_the_trainers_ask_ray_for() -> None:
    layout = load_text(resolve("local/grpo-tiny").read_text(), "x").layout
    assert groups(layout) == (
        Group("learner", (2,), "STRICT_SPREAD", members=("learner",)),
        Group("engine", (1,), "PACK", members=("engine",)),
    )
    assert ray_resources(2, on_cpu=True) == {"CPU": 2.0}
    assert ray_resources(2, on_cpu=False) == {"GPU": 2.0, "CPU": 2.0}


def test_pools_come_first_and_teachers_before_engines() -> None:
    assert [group.role for group in groups(load_text(PPO, "x").layout)] == ["pool policy", "pool value"]
    assert [group.role for group in groups(load_text(OPD, "x").layout)] == ["learner", "teacher", "engine"]


def test_guests_sit_with_the_learner() -> None:
    assert picture(GPU, "roles.reference={}", "hardware.nodes=2") == [
        "node0 ┃ LR0 ┃ LR0 ┃ E0  ┃ E1  ┃",
        "node1 ┃ LR1 ┃ LR1 ┃ E2  ┃ E3  ┃",
    ]


def test_colocated_roles_share_gpus_and_pools_do_not() -> None:
    words = ["hardware.nodes=2", "pools={policy: {gpus: [2, 2]}, value: {gpus: [2, 2]}}", "roles.reference={}"]
    assert picture(PPO, *words) == [
        "node0 ┃ LRE0 ┃ LRE1 ┃ C0   ┃ C0   ┃",
        "node1 ┃ LRE2 ┃ LRE3 ┃ C1   ┃ C1   ┃",
    ]


def test_learners_on_the_emptiest_nodes_engines_fill_the_gaps() -> None:
    placement = placed(GPU, "roles.learner.gpus=[1, 2]", "roles.rollout.engines=5")
    assert placement.free_slots == 0
    sizes = {seat.node: len(seat.slots) for seat in placement.instances if seat.role == "learner"}
    assert sorted(sizes.values()) == [1, 2]
    assert len(set(nodes_of(placement, "learner"))) == 2


@pytest.mark.parametrize(
    ("gpus", "engines", "width", "stranded"),
    [([2, 1], 2, 2, 1), ([1, 1], 2, 2, 2), ([2, 2], 2, 2, 0), ([1, 1], 0, 4, 6)],
)
def test_stranded_gpus_are_counted(gpus: list[int], engines: int, width: int, stranded: int) -> None:
    words = [f"roles.learner.gpus={gpus}", f"roles.rollout.engines={engines}", f"roles.rollout.tensor_parallel={width}"]
    placement = placed(GPU, *words)
    assert placement.stranded_because("too_few_for_an_engine") == stranded
    assert placement.unplaced == ()


def test_engines_that_fit_nowhere_are_named_with_the_reason() -> None:
    placement = placed(GPU, "roles.learner.gpus=[1, 1]", "roles.rollout.engines=1", "roles.rollout.tensor_parallel=4")
    assert [(each.role, each.index, each.slots, each.reason) for each in placement.unplaced] == [
        ("engine", 0, 4, "no_room")
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["roles.learner.gpus=[5]"], "node_too_small"),
        (["roles.learner.gpus=[1, 1, 1]"], "too_few_nodes"),
        (["hardware.cpus_per_node=3"], "no_cpus"),
        (["roles.rollout.engines=9"], "no_room"),
    ],
)
def test_every_reason_why_a_bundle_has_no_place(words: list[str], reason: str) -> None:
    assert reason in {each.reason for each in placed(GPU, *words).unplaced}


def test_engines_beyond_their_pool_have_no_place() -> None:
    assert [each.reason for each in placed(PPO, "roles.rollout.engines=3").unplaced] == ["pool_too_small"]


def test_gpus_outside_ray_are_subtracted_and_drawn() -> None:
    words = ["roles.teacher=null", "hardware.gpus_outside_ray=4"]
    assert picture(OPD, *words) == ["node0 ┃ L0 ┃ L0 ┃ E0 ┃ E1 ┃ ×× ┃ ×× ┃ ×× ┃ ×× ┃"]
    placement = placed(OPD, *words)
    assert (placement.outside_ray, placement.free_slots) == (4, 0)


def test_idle_pool_gpus_are_counted() -> None:
    words = ["roles.critic=null", "algorithm=grpo", "roles.rollout.engines=1"]
    placement = placed(PPO, *words)
    assert placement.stranded_because("idle_in_pool") == 2  # pool value has no role
    assert placement.free_slots == 2


@pytest.mark.parametrize(
    ("strategy", "nodes", "free", "expected"),
    [
        ("PACK", 3, (4, 4), {0: 0, 1: 0, 2: 0, 3: 0}),
        ("PACK", 2, (4, 2), {0: 0, 1: 0, 2: 1, 3: 1}),  # cores bind where GPUs do not
        ("STRICT_SPREAD", 3, (4, 4), {0: 0, 1: 1, 2: 2}),
    ],
)
def test_strategies(strategy: Strategy, nodes: int, free: tuple[int, int], expected: dict[int, int]) -> None:
    there = Nodes(on_cpu=False)
    there.fill(range(nodes), free)
    assert schedule(there, (1, 1, 1, 1), strategy) == expected


def test_a_thousand_nodes_are_drawn_in_part_and_counted_whole() -> None:
    words = ["hardware.nodes=1000", "hardware.gpus_per_node=8", "roles.rollout.engines=7996"]
    layout = load_text(GPU, "x", words).layout
    placement = place(layout)
    lines = draw(layout, placement)
    assert (len(placement.instances), placement.free_slots) == (7998, 0)
    assert any("… 968 more nodes" in line for line in lines)
    assert len(lines) < 50
