"""Whatever the layout: no GPU and no core twice, every bundle on one node, and nothing lost from the count."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from rltui.layout.load import load_text
from rltui.layout.presets import resolve
from rltui.placement.bundles import Group
from rltui.placement.simulate import place, simulate

TINY = resolve("local/grpo-tiny").read_text()
sizes = st.lists(st.integers(1, 6), min_size=1, max_size=6)
strategies = st.sampled_from(["STRICT_SPREAD", "STRICT_PACK", "PACK", "SPREAD"])
wanted = st.lists(st.tuples(sizes, strategies), min_size=1, max_size=3).map(
    lambda items: [Group(f"group {i}", tuple(slots), strategy) for i, (slots, strategy) in enumerate(items)]
)


@settings(max_examples=200, deadline=None)
@given(wanted, st.integers(1, 6), st.integers(1, 8), st.integers(1, 9))
def test_no_gpu_and_no_core_is_given_twice(asked: list[Group], nodes: int, slots: int, cpus: int) -> None:
    placement = simulate(asked, nodes, slots, cpus)
    taken = Counter((seat.node, slot) for seat in placement.seats for slot in seat.slots)
    assert all(count == 1 for count in taken.values())
    assert all(0 <= node < nodes and 0 <= slot < slots for node, slot in taken)
    assert all(count <= cpus for count in Counter(node for node, _ in taken).values())
    assert len(placement.seats) + len(placement.homeless) == sum(len(group.slots) for group in asked)
    assert placement.free_slots + len(taken) == nodes * slots
    assert placement == simulate(asked, nodes, slots, cpus)


@settings(max_examples=200, deadline=None)
@given(wanted, st.integers(1, 6), st.integers(1, 8))
def test_strategies_keep_their_word(asked: list[Group], nodes: int, slots: int) -> None:
    placement = simulate(asked, nodes, slots)
    for group in asked:
        homes = [seat.node for seat in placement.seats if seat.role == group.role]
        if group.strategy == "STRICT_SPREAD":
            assert len(homes) == len(set(homes))
        if group.strategy == "STRICT_PACK":
            assert len(set(homes)) <= 1
            assert len(homes) in (0, len(group.slots))


@st.composite
def layouts(draw: st.DrawFn) -> list[str]:
    """Overrides of the tiny preset: learners or pools, engines of some width, what is served, guests and kinds."""
    number = st.integers(1, 4)
    words = [f"hardware.nodes={draw(number)}", f"hardware.gpus_per_node={draw(st.integers(1, 8))}", "hardware.gpu=H100"]
    words += [f"roles.rollout.tensor_parallel={draw(number)}", f"roles.rollout.engines={draw(st.integers(0, 6))}"]
    words.append(f"hardware.gpus_outside_ray={draw(st.integers(0, 2))}")
    if draw(st.booleans()):
        words += [f"pools={{all: {{gpus: {draw(sizes)}}}}}", "roles.learner.gpus=[]", "roles.learner.pool=all"]
        words += ["roles.rollout.pool=all"] * draw(st.booleans())
    else:
        words.append(f"roles.learner.gpus={draw(sizes)}")
    elsewhere = draw(st.sampled_from(["", "rollout", "learner", "teacher", "judge", "reward_model"]))
    if elsewhere:
        sizes_there = f"nodes: {draw(number)}, gpus_per_node: {draw(st.integers(1, 8))}"
        words.append(f"hardware.more={{there: {{roles: [{elsewhere}], {sizes_there}}}}}")
    for role in ("teacher", "judge"):
        if draw(st.booleans()):
            words.append(f"roles.{role}={{model: m, engines: {draw(number)}, tensor_parallel: {draw(number)}}}")
    if draw(st.booleans()):
        words.append(f"roles.reward_model={{model: m, engines: {draw(number)}}}")
    return words + ["roles.reference={}"] * draw(st.booleans()) + ["roles.critic={}"] * draw(st.booleans())


@settings(max_examples=200, deadline=None)
@given(layouts())
def test_layouts_never_over_commit_and_account_for_every_gpu(words: list[str]) -> None:
    layout = load_text(TINY, "tiny.yaml", words).layout
    placement = place(layout)
    room = [part.ray_gpus_per_node for part in layout.hardware.parts for _ in range(part.nodes)]
    used = {(seat.node, slot) for seat in placement.seats for slot in seat.slots}
    assert all(slot < room[node] for node, slot in used)
    assert len(used) + placement.free_slots == sum(room)
    for role in ("learner", "engine", "teacher", "judge", "reward_model", "reference", "critic"):
        mine = Counter((s.node, slot) for s in placement.seats if s.role == role for slot in s.slots)
        assert all(count == 1 for count in mine.values()), role
