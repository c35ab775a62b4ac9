"""What a self-test measured: kept by cluster and card, and taken by plan instead of what it assumes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rltui.cli.main import main
from rltui.cluster.profile import Profile
from rltui.errors import RltuiError
from rltui.hardware.gpus import find_gpu
from rltui.hardware.models import find_model
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.memory.layouts import estimate_roles
from rltui.paths import ensure_private, state_dir
from rltui.plan.cards import link_bytes_per_s, network_bytes_per_s, ring_bytes_per_s
from rltui.plan.decoding import decode_step, decode_step_s
from rltui.plan.measured import FILE, Measured, keep_measured, read_measured
from rltui.plan.rates import rates_of
from rltui.plan.request import Request
from rltui.service.selftest import Asked, Result, Row, keep, words_of

CARD = "H100-SXM-80GB"
PLAN = ("plan", "--model", "Qwen/Qwen2.5-7B", "--gpus", "1x4xH100", "--json")


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLTUI_STATE_DIR", str(tmp_path))


def request(card: str = CARD, nodes: int = 2, **measured: float) -> Request:
    model, gpu = find_model("Qwen/Qwen2.5-7B"), find_gpu(card)
    assert model is not None
    assert gpu is not None
    known = Measured(**measured)  # type: ignore[arg-type]
    return Request(model_name="m", model=model, gpu=gpu, nodes=nodes, gpus_per_node=4, measured=known)


def result(*rows: Row, gpu: str = CARD) -> Result:
    return Result(gpu=gpu, nodes=1, gpus_per_node=4, model="m", measured_at=1.8e9, parts=("card",), rows=rows)


def row(**measured: float) -> Row:
    return Row(part="card", verdict="ok", figure="", measured=measured)


def kept(found: Result, run: str = "selftest-1") -> str:
    told: Any = (SimpleNamespace(name="local"), SimpleNamespace(run_id=run))
    return keep(*told, found)


def test_links_are_as_measured_and_shares_never_above_what_the_card_reached() -> None:
    assert link_bytes_per_s(request(node_bytes_per_s=1e9), (4,)) == 1e9
    assert link_bytes_per_s(request(network_bytes_per_s=2e9), (4, 4)) == 2e9
    assert link_bytes_per_s(request(node_bytes_per_s=1e9, network_bytes_per_s=2e9), (4, 4)) == 1e9
    assert link_bytes_per_s(request(network_bytes_per_s=2e9), (4,)) == link_bytes_per_s(request(), (4,))
    assert decode_step_s(request(bandwidth=0.95), 1, 8) == decode_step_s(request(), 1, 8)
    assert decode_step_s(request(bandwidth=0.3), 1, 8)[0] > 1.5 * decode_step_s(request(), 1, 8)[0]


def test_a_ring_over_whole_nodes_has_the_adapters_of_all_their_cards() -> None:
    network = network_bytes_per_s(request())
    assert [ring_bytes_per_s(request(), (each, each)) for each in (1, 2, 4)] == [network, 2 * network, 4 * network]
    assert ring_bytes_per_s(request(), (4,)) == link_bytes_per_s(request(), (4,)) > 4 * network
    assert ring_bytes_per_s(request(network_bytes_per_s=2e9), (4, 4)) == 2e9


def test_what_was_measured_is_kept_and_said_by_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--cluster", "local"]) == 0
    before = capsys.readouterr()
    assert f"no self-test has measured {CARD} on local" in before.err
    first = kept(result(row(bandwidth_bytes_per_s=1e12, matmul_flops_per_s=3e14)))
    assert first.startswith("`rltui plan --cluster local` takes: at most 30% of the peak FLOP/s, at most 30%")
    kept(result(row(all_reduce_node_bytes_per_s=5e10)), "selftest-2")
    assert main([*PLAN, "--cluster", "local"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["measured"]["node_bytes_per_s"] == 5e10
    assert told["measured"]["bandwidth"] == pytest.approx(0.3, abs=0.01)
    assert told["measured"]["sources"] == {
        "matmul": f"selftest-1 on {CARD} of local, 2027-01-15",
        "bandwidth": f"selftest-1 on {CARD} of local, 2027-01-15",
        "node_bytes_per_s": f"selftest-2 on {CARD} of local, 2027-01-15",
    }
    slower = told["proposals"][0]["time"]["step_s"]
    assert slower > json.loads(before.out)["proposals"][0]["time"]["step_s"]
    main([*PLAN[:-1], "--cluster", "local"])
    said = " ".join(capsys.readouterr().out.split())
    assert (
        f"of the bandwidth (measured: selftest-1 on {CARD} of local, 2027-01-15); 50 GB/s in a node (measured" in said
    )


def test_nothing_is_kept_without_a_card_or_over_a_file_that_cannot_be_read() -> None:
    assert "it ran without cards" in kept(result(row(bandwidth_bytes_per_s=1e10), gpu="cpu"))
    assert "neither cards nor links" in kept(result(row(clock_skew_s=0.1)))
    assert read_measured(state_dir()) == {}
    (ensure_private(state_dir()) / FILE).write_text("[]")
    with pytest.raises(RltuiError, match=FILE):
        kept(result(row(bandwidth_bytes_per_s=1e12)))
    with pytest.raises(ValueError, match=FILE):
        keep_measured(state_dir(), "local", CARD, {}, "")


def test_cards_with_few_flops_reach_more_of_their_data_sheet_in_training() -> None:
    hopper, ampere, slow = (request(card) for card in (CARD, "A100-80GB", "H20"))
    published, more = rates_of(hopper.model, hopper.gpu), rates_of(ampere.model, ampere.gpu)
    assert (more.decode, more.training) == (published.decode, pytest.approx(1.4 * published.training))
    assert rates_of(slow.model, slow.gpu).training == pytest.approx(1.5 * published.training)
    own = rates_of(ampere.model, ampere.gpu, {"A100-SXM-80GB": {"dense": published}})
    assert own.training == published.training, "what runs on these cards reached stands as it is"


def test_nodes_of_one_rack_talk_over_nvlink() -> None:
    rack, racks, others = request("GB200", 8), request("GB200", 32), request(CARD, 8)
    assert link_bytes_per_s(rack, (4, 4)) == link_bytes_per_s(rack, (4,)) == pytest.approx(0.7 * 900e9)
    assert link_bytes_per_s(racks, (4, 4)) == link_bytes_per_s(others, (4, 4)) == pytest.approx(0.7 * 50e9)
    assert decode_step(rack, 8, 1).fixed_s < decode_step(others, 8, 1).fixed_s
    told = request("GB200", 8, network_bytes_per_s=20e9)
    assert link_bytes_per_s(told, (4, 4)) == 20e9, "what a self-test measured between the nodes"


@pytest.mark.parametrize(
    ("card", "model", "knobs"),
    [
        # tried on an H200: vLLM takes 0.9 of the card if nothing is said, and did not find it when it woke up
        ("H200", "Qwen/Qwen3-1.7B", ["rollout.memory_utilization"]),
        (CARD, "Qwen/Qwen3-8B", ["learner.offload", "learner.zero_stage", "rollout.memory_utilization"]),
    ],
)
def test_a_self_test_of_a_users_model_on_one_card_fits_it(card: str, model: str, knobs: list[str]) -> None:
    profile = Profile(name="here", scheduler="slurm", gpu=card, gpus_per_node=1)
    words = words_of(Asked(model=model), profile)
    assert [word.split("=")[0] for word in words[-len(knobs) :]] == [f"roles.{knob}" for knob in knobs]
    layout = load_layout(resolve("local/grpo-tiny"), [*words, "roles.rollout.engine=vllm"]).layout
    assert {role.verdict for role in estimate_roles(layout).roles} <= {"fits", "tight"}
    assert not any("utilization" in word or "offload" in word for word in words_of(Asked(), profile))
