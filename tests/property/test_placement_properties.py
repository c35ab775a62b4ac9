"""Whatever the layout: no GPU and no core twice, every bundle on one node, and nothing lost from the count."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from rltui.layout.load import load_text
from rltui.layout.presets import resolve
from rltui.placement.bundles import Strategy
from rltui.placement.scheduler import Nodes, schedule
from rltui.placement.simulate import place

TINY = resolve("local/grpo-tiny").read_text()
sizes = st.lists(st.integers(1, 6), min_size=1, max_size=6)
wanted = st.lists(st.tuples(sizes, st.sampled_from(["STRICT_SPREAD", "PACK"])), min_size=1, max_size=3)


@settings(max_examples=200, deadline=None)
@given(wanted, st.integers(1, 6), st.integers(1, 8), st.integers(1, 9))
def test_no_node_gives_more_than_it_has_and_a_node_of_ones_own_is_one(
    asked: list[tuple[list[int], Strategy]], nodes: int, slots: int, cpus: int
) -> None:
    there = Nodes(on_cpu=False)
    there.fill(range(nodes), (slots, cpus))
    taken: Counter[int] = Counter()
    for bundles, strategy in asked:
        homes = schedule(there, bundles, strategy)
        taken.update(dict.fromkeys(homes.values(), 0))
        for index, node in homes.items():
            taken[node] += bundles[index]
        left = [size for index, size in enumerate(bundles) if index not in homes]
        if strategy == "STRICT_SPREAD":
            assert len(homes) == len(set(homes.values()))
        elif left:
            assert min(left) > min(slots, cpus) - min((taken[node] for node in range(nodes)), default=0)
    assert all(0 <= node < nodes and count <= min(slots, cpus) for node, count in taken.items())


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
    used = {(seat.node, slot) for seat in placement.instances for slot in seat.slots}
    assert all(slot < room[node] for node, slot in used)
    assert len(used) + placement.free_slots == sum(room)
    for role in ("learner", "engine", "teacher", "judge", "reward_model", "reference", "critic"):
        mine = Counter((s.node, slot) for s in placement.instances if s.role == role for slot in s.slots)
        assert all(count == 1 for count in mine.values()), role
