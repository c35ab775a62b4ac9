"""Plans of PPO and of distillation: what fits, how it is ranked, and how it stands beside the presets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_plan import propose, request, sound

from rltui.check.run import Report, check_file, check_layout, check_text
from rltui.cli import plan_table
from rltui.cli.main import main
from rltui.hardware.models import find_model
from rltui.layout.load import load_layout, load_text
from rltui.memory.layouts import estimate_layout
from rltui.plan import remedies
from rltui.plan.actor_critic import divisions, with_memory
from rltui.plan.decoding import teacher_s
from rltui.plan.distill import engines_left, replica_counts
from rltui.plan.of_layout import predict
from rltui.plan.rank import candidates
from rltui.plan.request import Request
from rltui.plan.throughput import step_time
from rltui.plan.training import train_s

LAYOUTS = Path(__file__).parents[2] / "layouts"
THREE = "Qwen/Qwen2.5-3B-Instruct"
LIKE_THE_GUIDE = {"prompts": 256, "samples": 1, "prompt_tokens": 512, "response_tokens": 1024, "kl_coefficient": 0.001}


def ppo(name: str = THREE, nodes: int = 1, gpus: int = 4, card: str = "A100-80GB", **more: Any) -> Request:
    return request(name, nodes, gpus, card, algorithm="ppo", **more)


def opd(nodes: int = 1, gpus: int = 8, **more: Any) -> Request:
    lengths = {"prompt_tokens": 2048, "response_tokens": 4096, "teacher_name": "Qwen/Qwen3-32B"} | more
    teacher = find_model(lengths["teacher_name"])
    return request("Qwen/Qwen3-8B", nodes, gpus, "H100", algorithm="opd", teacher=teacher, reward="none", **lengths)


CASES = {
    "3B PPO on 1x4": ppo(**LIKE_THE_GUIDE),
    "3B PPO on 2x8": ppo(nodes=2, gpus=8, **LIKE_THE_GUIDE),
    "3B PPO on 1x3": ppo(gpus=3, prompts=240, samples=1),
    "7B PPO on 2x8 H100": ppo("Qwen/Qwen2.5-7B", 2, 8, "H100"),
    "1.5B PPO on 2 V100": ppo("Qwen/Qwen2.5-1.5B", 1, 8, "V100-32GB"),
    "0.5B PPO on one card": ppo("Qwen/Qwen2.5-0.5B", 1, 1, "H100"),
    "32B to 8B on 8": opd(),
    "32B to 8B on 16": opd(2),
    "30B-A3B to 8B on 8": opd(teacher_name="Qwen/Qwen3-30B-A3B"),
}


@pytest.mark.parametrize("wanted", CASES.values(), ids=CASES)
def test_proposals_fit_check_and_round_trip(wanted: Request) -> None:
    proposals = propose(wanted)
    assert proposals
    speeds = [each.time.tokens_per_s for each in proposals]
    assert speeds == sorted(speeds, reverse=True)
    assert len({each.text for each in proposals}) == len(proposals)
    for each in proposals:
        loaded = load_text(each.text, "plan.yaml")
        assert loaded.layout == each.layout
        report = check_layout(loaded)
        assert report.ok
        assert report.placement is not None
        assert not report.placement.unplaced
        estimate = estimate_layout(each.layout)
        assert {role.role for role in estimate.roles} == set(each.setup.memories)
        assert all(role.verdict in ("fits", "tight") for role in estimate.roles)
        for role in estimate.roles:
            assert role.peak_gib == pytest.approx(each.setup.memories[role.role].peak_gib)
        # the bundled trainers can run what is proposed
        assert not {finding.code for finding in report.findings} & {"B221", "B224", "B225", "B226", "E390"}


@pytest.mark.parametrize("wanted", [*CASES.values()], ids=CASES)
def test_a_step_is_the_sum_of_its_terms(wanted: Request) -> None:
    for each in propose(wanted):
        time = each.time
        both = max(time.train_s, time.critic_s) if each.setup.placement == "split" else time.train_s + time.critic_s
        assert time.update_s == pytest.approx(both)
        assert time.step_s == pytest.approx(
            time.generate_s + time.teacher_s + time.update_s + time.sync_s + time.other_s
        )
        assert 0 <= time.idle_share < 1
        assert msgspec.structs.asdict(predict(each.layout).time) == pytest.approx(msgspec.structs.asdict(time))


def test_placements_of_ppo_are_compared_and_the_difference_is_named() -> None:
    proposals = propose(ppo(**LIKE_THE_GUIDE))
    assert {each.setup.placement for each in proposals} == {"standard", "split", "apart"}
    best, *others = proposals
    assert best.setup.placement == "standard", "as verl's default: no GPU waits for another"
    assert "fastest of" in best.why
    for each in others:
        slower = each.time.step_s / best.time.step_s - 1
        assert each.why.startswith(f"{slower:.0%} slower: ")
    split = next(each for each in others if each.setup.placement == "split")
    assert set(split.layout.pools) == {"policy", "value"}
    assert split.layout.roles.critic is not None
    assert split.layout.roles.critic.pool == "value"
    assert split.layout.roles.reference is not None
    assert split.layout.roles.reference.pool == split.layout.roles.rollout.pool == "policy"


@pytest.mark.parametrize(("nodes", "gpus", "preset"), [(1, 4, "ppo-1x4"), (2, 8, "ppo-2x8")])
def test_the_guides_ppo_stands_beside_its_presets(nodes: int, gpus: int, preset: str) -> None:
    """The presets' divisions are among those planned, and none is far from the best of its kind."""
    wanted = ppo(nodes=nodes, gpus=gpus, **LIKE_THE_GUIDE)
    planned = candidates(wanted)
    for kind in ("standard", "split"):
        preset_layout = load_layout(LAYOUTS / "verl-ppo" / f"{preset}-{kind}.yaml").layout
        home = preset_layout.roles.learner.pool
        same = [
            each
            for each in planned
            if each.setup.placement == kind and list(each.setup.learner.gpus) == preset_layout.pools[home].gpus
        ]
        best = min(each.time.step_s for each in planned if each.setup.placement == kind)
        assert same
        assert min(each.time.step_s for each in same) <= 1.25 * best


@pytest.mark.parametrize(("nodes", "learners"), [(1, (3, 4)), (2, (6, 8))])
def test_the_guides_distillation_stands_beside_its_presets(nodes: int, learners: tuple[int, ...]) -> None:
    """text-8 has four learners, text-16 eight; all GPUs are used, and the 32B teacher has a card or two a replica.

    With six learners and an engine more a step of the latter takes 0.1 % less.
    """
    best = propose(opd(nodes))[0].setup
    assert best.teacher is not None
    assert best.learner.ranks in learners
    assert best.teacher.tensor_parallel in (1, 2)
    used = best.learner.ranks + best.teachers * best.teacher.tensor_parallel
    assert used + best.engines * best.engine.tensor_parallel == 8 * nodes


def test_without_a_kl_penalty_there_is_no_reference() -> None:
    plain = propose(ppo())[0]
    assert plain.layout.roles.reference is None
    assert plain.layout.ppo.kl == "none"
    with_kl = propose(ppo(kl_coefficient=0.01))[0]
    assert with_kl.layout.ppo.kl == "loss"
    assert with_kl.layout.ppo.kl_coefficient == 0.01
    same = [each for each in candidates(ppo()) if each.setup.placement == with_kl.setup.placement]
    assert with_kl.time.train_s > min(each.time.train_s for each in same)


def test_a_smaller_critic_trains_faster() -> None:
    small = find_model("Qwen/Qwen2.5-0.5B")
    best = propose(ppo(critic_name="Qwen/Qwen2.5-0.5B", critic=small))[0]
    assert best.layout.roles.critic is not None
    assert best.layout.roles.critic.model == "Qwen/Qwen2.5-0.5B"
    assert best.time.critic_s < 0.5 * best.time.train_s


def test_the_critic_has_no_language_head_and_so_fewer_flops() -> None:
    wanted = ppo()
    setup = candidates(wanted)[0].setup
    assert setup.critic is not None
    assert train_s(wanted, setup.critic, wanted.model)[0] < train_s(wanted, setup.critic)[0]


def test_what_engines_may_take_is_what_the_others_leave() -> None:
    for each in candidates(ppo(**LIKE_THE_GUIDE)):
        if each.setup.placement == "apart":
            assert each.setup.utilization == 0.9
            continue
        again = with_memory(ppo(**LIKE_THE_GUIDE), each.setup)
        assert again.utilization == each.setup.utilization
        assert again.verdict != "no"


def test_engines_sleep_where_that_is_what_makes_room() -> None:
    """Two 7B models on eight cards leave an engine that stays awake too little of them."""
    sleepers = [each for each in candidates(ppo("Qwen/Qwen2.5-7B", 1, 8, "A100-80GB")) if each.setup.sleeps]
    assert sleepers
    for each in sleepers[:3]:
        awake = [other for other in candidates(ppo("Qwen/Qwen2.5-7B", 1, 8, "A100-80GB")) if not other.setup.sleeps]
        pairs = [
            other for other in awake
            if (other.setup.placement, other.setup.learner.gpus, other.setup.engine.tensor_parallel)
            == (each.setup.placement, each.setup.learner.gpus, each.setup.engine.tensor_parallel)
        ]  # fmt: skip
        assert not pairs, "of a pair that differs in sleep alone one is kept"


def test_rollouts_that_run_ahead_have_gpus_of_their_own() -> None:
    assert {division.placement for division in divisions(ppo(async_steps=1))} == {"apart"}
    assert {division.placement for division in divisions(ppo())} == {"apart", "standard", "split"}


def test_more_teachers_score_faster_and_a_wider_one_as_fast_as_two() -> None:
    wanted = opd()
    setup = candidates(wanted)[0].setup
    assert setup.teacher is not None
    assert teacher_s(wanted, setup.teacher, 4) == pytest.approx(teacher_s(wanted, setup.teacher, 2) / 2)
    # 512 samples of 4096 tokens at the mean, 2 × 31.98e9 FLOPs a token and attention, at half of 989 TFLOP/s
    one = teacher_s(wanted, setup.teacher, 1) * setup.teacher.tensor_parallel
    assert one == pytest.approx(512 * 4096 * 2 * 32e9 / (0.5 * 989e12), rel=0.15)


def test_teachers_and_engines_share_what_learners_leave() -> None:
    assert replica_counts(20) == [1, 2, 3, 4, 6, 8, 12, 16]
    assert engines_left(opd(2), (8,), 2, 2, 1) == 4
    assert engines_left(opd(1), (4,), 1, 2, 2) == 1
    assert engines_left(opd(1), (4,), 4, 2, 1) == 0
    assert engines_left(opd(2), (4,), 4, 1, 8) == 1


@pytest.mark.parametrize("algorithm", ["ppo", "opd"])
def test_longer_responses_and_more_samples_take_longer(algorithm: str) -> None:
    make: Any = {"ppo": ppo, "opd": opd}[algorithm]
    short, long = (propose(make(nodes=2, gpus=8, response_tokens=size))[0].time.step_s for size in (512, 4096))
    assert long > short
    few, many = (propose(make(nodes=2, gpus=8, prompts=size))[0].time.step_s for size in (32, 128))
    assert many > few


def test_plans_are_deterministic() -> None:
    assert [each.text for each in propose(ppo())] == [each.text for each in propose(ppo())]
    assert [each.text for each in propose(opd())] == [each.text for each in propose(opd())]


def test_times_are_those_of_the_setup() -> None:
    for wanted in (ppo(), opd()):
        best = propose(wanted)[0]
        assert step_time(wanted, best.setup) == best.time


@pytest.mark.parametrize(
    ("wanted", "role"),
    [
        (ppo("Qwen/Qwen2.5-14B", 1, 1, "H100"), "learner"),
        (ppo("Qwen/Qwen3-32B", 1, 2, "H100"), "learner"),
        (opd(1, 2), "learner, rollout and teacher"),
        (opd(1, 8, teacher_name="Qwen/Qwen3-235B-A22B"), "learner"),
    ],
    ids=["14B on one", "32B on two", "three roles on two", "a teacher that takes all"],
)
def test_where_nothing_fits_a_role_is_named_and_the_smallest_that_works(wanted: Request, role: str) -> None:
    assert propose(wanted) == ()
    found = remedies.misfit(wanted, sound)
    assert role in found.role
    assert found.reason
    assert found.remedies[0].startswith("more GPUs: --gpus ")
    nodes, gpus = (int(word) for word in found.remedies[0].split()[3].split("x")[:2])
    fewer = msgspec.structs.replace(wanted, nodes=nodes - 1, gpus_per_node=gpus) if nodes > 1 else None
    assert propose(msgspec.structs.replace(wanted, nodes=nodes, gpus_per_node=gpus))
    assert fewer is None or propose(fewer) == () or fewer.total_gpus <= wanted.total_gpus


@pytest.mark.parametrize(
    "words",
    [
        ["--model", THREE, "--gpus", "2x8xA100-80GB", "--algorithm", "ppo", "--kl", "0.001"],
        ["--model", "Qwen/Qwen3-8B", "--teacher", "Qwen/Qwen3-32B", "--gpus", "2x8xH100", "--algorithm", "opd"],
    ],
    ids=["ppo", "opd"],
)
def test_the_verb_fits_a_terminal_and_its_layouts_are_saved_sound(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
) -> None:
    assert main(["plan", *words]) == 0
    out = capsys.readouterr().out
    table = out[out.index("#  ") : out.index("#1 ")].splitlines()
    assert max(len(line) for line in table) <= 80
    again = next(line for line in out.splitlines() if line.startswith("save:")).split()[3:-2]
    assert main(["plan", *again, "--json", "--save", str(tmp_path / "plans")]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["proposals"][0]["layout"]["name"] in out, "the command that it prints gives the same proposals"
    for path in answer["saved"]:
        assert check_file(Path(path)).ok


def test_each_proposal_is_checked_once_for_all_places_that_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = request()
    proposals = propose(wanted)
    checked: list[str] = []

    def check(text: str, name: str) -> Report:
        checked.append(name)
        return check_text(text, name)

    monkeypatch.setattr("rltui.cli.plan_table.check_text", check)
    shown = list(plan_table.lines(wanted, proposals, [f"{each.layout.name}.yaml" for each in proposals]))
    assert checked == [f"{each.layout.name}.yaml" for each in proposals]
    assert shown[-1] == f"rltui launch {checked[-1]}"
