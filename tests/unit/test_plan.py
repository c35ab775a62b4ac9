"""Plans: known cases, what must grow with what, and the verb as a shell sees it."""

from __future__ import annotations

import cProfile
import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from rltui.check.run import check_file, check_layout, check_text
from rltui.cli.main import main
from rltui.hardware.gpus import find_gpu
from rltui.hardware.models import find_model
from rltui.layout.load import dump_layout, load_text
from rltui.memory.layouts import estimate_layout
from rltui.plan import rank, remedies
from rltui.plan.candidates import engine_choices, engines_beside, packed
from rltui.plan.decoding import decode_step_s, generate_s, steady_s
from rltui.plan.of_layout import predict
from rltui.plan.rank import Proposal, candidates
from rltui.plan.rates import TRUST, rates_of, read_calibration
from rltui.plan.remedies import Misfit
from rltui.plan.request import Request
from rltui.plan.throughput import model_step_s, sync_s

SEVEN = "Qwen/Qwen2.5-7B"
CASES = [(SEVEN, 2, 4, "H100"), (SEVEN, 1, 4, "A100-80GB"), ("Qwen/Qwen3-30B-A3B", 2, 8, "H100"),
         ("allenai/Olmo-3-1125-32B", 8, 4, "GH200-96GB"), ("Qwen/Qwen2.5-1.5B", 2, 8, "V100-32GB")]  # fmt: skip


def request(name: str = SEVEN, nodes: int = 2, gpus: int = 4, card: str = "H100", **more: Any) -> Request:
    model, gpu = find_model(name), find_gpu(card)
    assert model is not None
    assert gpu is not None
    return Request(model_name=name, model=model, gpu=gpu, nodes=nodes, gpus_per_node=gpus, **more)


def sound(text: str, name: str) -> bool:
    return check_text(text, name).ok


def propose(wanted: Request, count: int = 3) -> tuple[Proposal, ...]:
    return rank.propose(wanted, sound, count)


def misfit(wanted: Request) -> Misfit:
    return remedies.misfit(wanted, sound)


def sentences(capsys: pytest.CaptureFixture[str]) -> str:
    """What was printed, without its line ends."""
    return " ".join(capsys.readouterr().out.split())


def test_what_the_check_refuses_is_passed_over() -> None:
    first = propose(request())[0]
    others = rank.propose(request(), lambda text, name: text != first.text)
    assert others
    assert first.text not in {each.text for each in others}
    assert rank.propose(request(), lambda text, name: False) == ()


def test_key_value_heads_are_copied_only_where_nothing_narrower_fits() -> None:
    large = request("Qwen/Qwen3-235B-A22B", 16, 8)  # 4 key-value heads, 438 GiB of weights
    assert [each.tensor_parallel for each in engine_choices(large)] == [1, 2, 4, 8]
    assert [each.tensor_parallel for each in engine_choices(request("Qwen/Qwen3-30B-A3B", 2, 8))] == [1, 2, 4]


@pytest.mark.parametrize("case", CASES)
def test_proposals_fit_check_and_round_trip(case: tuple[str, int, int, str]) -> None:
    proposals = propose(request(*case))
    assert proposals
    assert [each.rank for each in proposals] == list(range(1, len(proposals) + 1))
    speeds = [each.time.tokens_per_s for each in proposals]
    assert speeds == sorted(speeds, reverse=True)
    for each in proposals:
        loaded = load_text(each.text, "plan.yaml")
        assert loaded.layout == each.layout
        assert load_text(dump_layout(each.layout), "dump.yaml").layout == each.layout
        report = check_layout(loaded)
        assert report.ok
        assert report.placement is not None
        assert not report.placement.unplaced
        assert all(role.verdict in ("fits", "tight") for role in estimate_layout(each.layout).roles)
        assert predict(each.layout).time == each.time, "what Launch says of it is what plan said"
        assert "E390" not in {finding.code for finding in report.findings}, "the bundled trainers run it"
        assert "B225" not in {finding.code for finding in report.findings}, "no section of another algorithm"


def test_seven_billion_on_two_nodes_of_four_uses_all_gpus_and_both_roles() -> None:
    best = propose(request())[0]
    roles = best.layout.roles
    assert roles.learner.num_learners + roles.rollout.engines * roles.rollout.tensor_parallel == 8
    time_ = best.time
    assert time_.step_s == pytest.approx(time_.generate_s + time_.train_s + time_.sync_s + time_.other_s)
    assert 0 < time_.idle_share < 1


@pytest.mark.parametrize("name", [SEVEN, "Qwen/Qwen2.5-0.5B"])
def test_more_nodes_are_never_slower(name: str) -> None:
    speeds = [propose(request(name, nodes=nodes))[0].time.tokens_per_s for nodes in (1, 2, 3, 4, 8)]
    assert speeds == sorted(speeds)


def test_plans_are_deterministic() -> None:
    assert [each.text for each in propose(request(), 5)] == [each.text for each in propose(request(), 5)]


def test_rollouts_that_run_ahead_hide_the_shorter_phase() -> None:
    wanted = request(async_steps=1)
    first = propose(wanted)[0]
    best = first.time
    steady = steady_s(wanted, first.setup.engine, first.setup.engines)
    together = (best.generate_s + best.train_s) / 2
    assert best.step_s == pytest.approx(max(steady, together, best.train_s) + best.sync_s + best.other_s)
    assert best.step_s < propose(request())[0].time.step_s


def test_the_further_ahead_the_less_the_longest_response_holds_up_a_step() -> None:
    engine = next(each for each in engine_choices(request()) if each.memory.verdict == "fits")
    steps = [
        model_step_s(ahead, made, 10.0, steady_s(ahead, engine, 2))
        for ahead in (request(async_steps=steps, response_tokens=16384, response_mean=1000) for steps in (1, 2, 8))
        for made in [generate_s(ahead, engine, 2)[0]]
    ]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > steps[2] >= 10.0


def test_longer_responses_take_longer() -> None:
    short, long = (propose(request(nodes=4, response_tokens=length))[0].time for length in (512, 8192))
    assert long.step_s > short.step_s
    assert long.generate_s > short.generate_s


def test_weight_sync_is_slower_over_the_network() -> None:
    one, two = (candidates(request(nodes=nodes, gpus=8))[0].setup for nodes in (1, 2))
    near, far = (
        sync_s(request(nodes=1, gpus=8), one.learner, one.engine),
        sync_s(request(nodes=2, gpus=8), two.learner, one.engine),
    )
    assert near < far


def test_learners_are_packed_and_engines_take_whole_pieces_of_the_rest() -> None:
    assert packed(11, 4) == (4, 4, 3)
    assert packed(8, 4) == (4, 4)
    assert engines_beside(request(nodes=3), (4, 3), 2) == 2
    assert engines_beside(request(nodes=3), (4, 3), 1) == 5
    assert engines_beside(request(nodes=3, prompts=2), (4,), 1) == 2


def test_32b_on_one_gpu_says_what_is_missing_and_a_remedy_that_works() -> None:
    small = request("Qwen/Qwen3-32B", 1, 1)
    assert propose(small) == ()
    found = misfit(small)
    assert found.role == "learner and rollout"
    assert found.remedies[0].startswith("more GPUs: --gpus ")
    nodes, gpus, _ = found.remedies[0].split()[3].split("x", 2)
    assert propose(request("Qwen/Qwen3-32B", int(nodes), int(gpus)))


def test_the_role_that_does_not_fit_is_named() -> None:
    assert misfit(request("Qwen/Qwen3-32B", 1, 4)).role == "learner"
    assert misfit(request("Qwen/Qwen3-32B", 2, 1, "A100-40GB")).role == "rollout"


def test_where_nothing_fits_the_optimizer_goes_to_host_memory() -> None:
    found = propose(request("Qwen/Qwen3-32B", 1, 8))
    assert found
    assert {each.layout.roles.learner.offload for each in found} == {"optimizer"}
    assert all(check_text(each.text, each.layout.name).ok for each in found)
    with_room = propose(request("Qwen/Qwen3-32B", 4, 8))
    assert {each.layout.roles.learner.offload for each in with_room} == {"none"}
    assert found[0].time.train_s > with_room[0].time.train_s


def test_long_samples_share_rows_and_then_sequences() -> None:
    long = {"prompt_tokens": 2048, "prompts": 16, "samples": 8, "async_steps": 1}
    (first, *_) = propose(request("Qwen/Qwen3-4B-Instruct-2507", 1, 8, response_tokens=97952, **long))
    assert first.layout.lengths.pack == 100000, "a padding mask would be as large as the length's square"
    model = "Qwen/Qwen3-30B-A3B-Thinking-2507"
    (first, *_) = propose(request(model, 4, 8, response_tokens=129024, **long))
    assert first.layout.roles.learner.sequence_parallel > 1
    assert first.setup.learner.replicas * first.layout.roles.learner.sequence_parallel == first.setup.learner.ranks


def test_offload_is_no_remedy_where_one_engine_takes_every_gpu() -> None:
    assert propose(request("Qwen/Qwen3-235B-A22B", 1, 8)) == ()


def test_engines_over_nodes_are_named_but_are_no_layout() -> None:
    wanted = request("deepseek-ai/DeepSeek-V3", 32, 8)
    assert propose(wanted) == ()
    found = rank.elsewhere(wanted)
    assert found
    assert all(each.setup.engine.tensor_parallel > 8 for each in found)
    assert not check_text(found[0].text, "wide").ok
    assert misfit(wanted).role == "rollout"


def test_128_gpus_are_planned_within_a_second() -> None:
    profile = cProfile.Profile()
    assert profile.runcall(propose, request("allenai/Olmo-3-1125-32B", 16, 8))
    # calls are the same however busy the machine is; 1.7 million take 0.3 s
    assert sum(entry.callcount for entry in profile.getstats()) < 4_000_000


def test_the_verb_prints_the_picture_the_table_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", SEVEN, "--gpus", "2x4xH100"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("node0 ┃ LE0 ┃"), "learner and engines take turns on all GPUs"
    assert "TOKENS/S" in out
    assert "fastest of" in out
    assert "save:   rltui plan --model Qwen/Qwen2.5-7B --gpus 2x4xH100-SXM-80GB" in out
    assert "launch: rltui launch plans/" in out


def test_saved_layouts_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["plan", "--model", SEVEN, "--gpus", "2x4xH100", "--json", "--save", str(tmp_path / "plans")]
    assert main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == 1
    assert len(answer["saved"]) == len(answer["proposals"]) == 3
    for path, proposal in zip(answer["saved"], answer["proposals"], strict=True):
        assert check_file(Path(path)).ok
        assert Path(path).stem == proposal["layout"]["name"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "Qwen/Qwen2.5-7C", "--gpus", "2x4xH100"], "Did you mean Qwen2.5-7B"),
        (["--model", SEVEN, "--gpus", "2x4xH1000"], "Did you mean H100"),
        (["--model", SEVEN, "--gpus", "8"], "NODESxGPUSxCARD"),
        (["--model", SEVEN, "--gpus", "9999x9999xH100"], "at most"),
        (["--model", SEVEN, "--gpus", "2x4xH100", "--response-tokens", "500000"], "has positions for"),
        (["--model", SEVEN, "--gpus", "2x4xH100", "--samples", "1"], "--samples must be between"),
        (["--model", SEVEN, "--gpus", "2x4xH100", "--save", "/dev/null/x"], "cannot be written"),
        (["--model", SEVEN, "--gpus", "2x4xH100", "--kl", "0.1"], "--kl is for --algorithm ppo"),
        (["--model", SEVEN, "--gpus", "2x4xH100", "--algorithm", "ppo", "--kl", "-1"], "--kl must be between"),
        (["--model", SEVEN, "--gpus", "2x4xH100", "--algorithm", "ppo", "--teacher", SEVEN], "for --algorithm opd"),
        (["--model", SEVEN, "--gpus", "2x4xH100", "--algorithm", "ppo", "--critic", "Qwen/Qwen2.5-7C"], "is not known"),
        (["--model", SEVEN, "--gpus", "2x4xH100", "--algorithm", "opd"], "Name it: --teacher"),
    ],
)
def test_words_that_are_not_understood(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(["plan", *words]) == 2
    assert said in capsys.readouterr().err


def test_nothing_fits_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "Qwen/Qwen3-32B", "--gpus", "1x1xH100"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("Nothing fits 1×1 H100-SXM-80GB")
    assert "would help: more GPUs" in out
    assert main(["plan", "--model", "Qwen/Qwen3-32B", "--gpus", "1x1xH100", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["misfit"]["remedies"]


def test_an_engine_over_nodes_is_shown_as_what_others_can_run(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--model", "deepseek-ai/DeepSeek-V3", "--gpus", "32x8xH100"]
    assert main(words) == 1
    out = sentences(capsys)
    assert "stays within a node" in out
    assert "×TP32" in out
    assert "not known: no published time has been compared for an offloaded optimizer" in out
    assert main([*words, "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["proposals"] == []
    assert answer["elsewhere"][0]["tensor_parallel"] > 8


def test_the_first_step_is_explained_by_its_terms(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", SEVEN, "--gpus", "2x4xH100", "--json"]) == 0
    time = json.loads(capsys.readouterr().out)["proposals"][0]["time"]
    assert main(["plan", "--model", SEVEN, "--gpus", "2x4xH100"]) == 0
    out = sentences(capsys)
    assert (
        f"#1 step {time['step_s']:.1f} s = generation {time['generate_s']:.1f} + training {time['train_s']:.1f}" in out
    )
    assert f"error: {time['step_s'] / 1.6:.0f} to {time['step_s'] * 1.6:.0f} s" in out
    assert "ms for a token of each" in out
    assert "micro-batches of" in out


def test_what_waits_for_what_is_said_where_rollouts_run_ahead(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--model", SEVEN, "--gpus", "2x4xH100", "--async-steps", "1"]
    assert main(words) == 0
    said = sentences(capsys).partition("#1 step")[2].partition(" generation:")[0]
    step, update, full, alone, sync, other = (float(each) for each in re.findall(r"\d+\.\d", said))
    assert step == pytest.approx(max(update, full, alone) + sync + other, abs=0.21)


def test_an_offloaded_optimizer_comes_with_the_host_memory_that_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "Qwen/Qwen3-32B", "--gpus", "1x8xH100"]) == 0
    out = sentences(capsys)
    sizes = [int(size) for size in re.findall(r"optimizer in host memory \((\d+) GiB of it a node\)", out)]
    assert sizes
    assert all(12 * 32.7 / 1.074 < size <= rank.HOST_GIB for size in sizes), "12 bytes a parameter at least"
    assert propose(request("Qwen/Qwen3-235B-A22B", 2, 8)) == (), "its optimizer would take 5 TiB of one node"


def test_shorter_responses_in_the_mean_are_made_and_trained_on_faster() -> None:
    short, half = (propose(request(response_tokens=8192, response_mean=mean))[0].time for mean in (1024, 4096))
    assert short.generate_s < half.generate_s
    assert short.step_s < half.step_s


@pytest.mark.parametrize("case", CASES)
def test_the_first_proposal_leaves_no_gpu_idle(case: tuple[str, int, int, str]) -> None:
    wanted = request(*case)
    assert propose(wanted)[0].setup.gpus == wanted.total_gpus


def test_rates_measured_on_the_cluster_stand_before_published_ones(tmp_path: Path) -> None:
    (tmp_path / "calibration.json").write_text('{"H100-SXM-80GB": {"dense": {"training": 0.5, "decode": 0.82}}}')
    model, gpu = request().model, request().gpu
    own = rates_of(model, gpu, read_calibration(tmp_path))
    assert (own.training, own.decode, own.source) == (0.5, 0.82, "measured on this cluster")
    assert decode_step_s(request(rates=own), 1, 1)[0] < decode_step_s(request(), 1, 1)[0]
    assert read_calibration(tmp_path / "none") == {}
    (tmp_path / "calibration.json").write_text("[]")
    with pytest.raises(ValueError, match=r"calibration\.json"):
        read_calibration(tmp_path)


@pytest.mark.parametrize("async_steps", [0, 1])
def test_the_even_division_is_among_three_and_says_why(async_steps: int) -> None:
    three = propose(request(async_steps=async_steps))
    even = [each for each in three if each.setup.placement == "apart" and each.setup.learner.ranks == 4]
    assert len(three) == 3
    assert even
    assert all("half and half" in each.why or each.rank == 1 for each in even)
    assert [each.rank for each in three] == [1, 2, 3]


def test_the_even_division_does_not_displace_the_fastest() -> None:
    three, one = propose(request()), propose(request(), 1)
    assert one[0].text == three[0].text
    assert propose(request(), 2)[1].text == three[1].text


def test_a_calibration_in_the_state_directory_changes_what_the_verb_says(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLTUI_STATE_DIR", str(tmp_path))
    words = ["plan", "--model", SEVEN, "--gpus", "2x4xH100", "--json"]
    assert main(words) == 0
    before = json.loads(capsys.readouterr().out)
    (tmp_path / "calibration.json").write_text('{"H100-SXM-80GB": {"dense": {"training": 0.2, "decode": 0.6}}}')
    assert main(words) == 0
    after = json.loads(capsys.readouterr().out)
    assert (before["trust"], after["trust"]) == (
        f"nine in ten of {TRUST['dense'].points} held-out published points of dense models are within a factor of 1.6",
        "measured on this cluster",
    )
    assert after["proposals"][0]["time"]["train_s"] > before["proposals"][0]["time"]["train_s"]


SHARES = '{"H100-SXM-80GB": {"dense": {"training": %s, "decode": 0.6}}}'


@pytest.mark.parametrize("text", ["[]", '{"H100', "\xff", SHARES % "0", SHARES % "1.5", SHARES % '"fast"', None])
def test_a_calibration_that_cannot_be_read_is_said_and_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    monkeypatch.setenv("RLTUI_STATE_DIR", str(tmp_path))
    words = ["plan", "--model", SEVEN, "--gpus", "2x4xH100", "--json"]
    assert main(words) == 0
    without = capsys.readouterr().out
    path = tmp_path / "calibration.json"
    path.mkdir() if text is None else path.write_text(text, encoding="latin-1")
    assert main(words) == 0
    said = capsys.readouterr()
    assert said.out == without
    assert f"{path}: " in said.err
    assert "correct or remove the file" in said.err


def test_divisions_differ_in_learners_and_do_not_leave_one_a_sample_short_for_little() -> None:
    three = propose(request(SEVEN, 2, 8, response_tokens=4096))
    apart = [each.setup.learner.ranks for each in three if each.setup.placement == "apart"]
    assert len(three) == 3
    assert 8 in apart, "half and half, whatever is a little faster beside it"
    assert all(abs(one - other) >= 2 for one, other in combinations(apart, 2)), "of other widths is no other division"
