"""``rltui calibrate``: the rates with which a run's steps come out as they were, and runs that cannot tell."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec import structs

from rltui.cli.main import main
from rltui.errors import RltuiError
from rltui.hardware.gpus import find_gpu
from rltui.hardware.models import find_model
from rltui.layout.load import load_text
from rltui.layout.roles import Learner
from rltui.layout.schema import Layout
from rltui.paths import ensure_private, run_root, state_dir
from rltui.plan.behind import behind_plan
from rltui.plan.calibrate import calibrate
from rltui.plan.of_layout import training_way
from rltui.plan.rank import propose
from rltui.plan.rates import PUBLISHED, Rates, read_calibration
from rltui.plan.request import Request
from rltui.plan.setup import Training
from rltui.plan.training import train_s

SEVEN = "Qwen/Qwen2.5-7B"


def request(**changes: Any) -> Request:
    model, gpu = find_model(SEVEN), find_gpu("H100")
    assert model is not None
    assert gpu is not None
    about = {"model_name": SEVEN, "model": model, "gpu": gpu, "nodes": 1, "gpus_per_node": 8, "response_mean": 700.0}
    return Request(**{**about, **changes})


def run_of(
    wanted: Request, rank: int = 0, noise: float = 0.0, **overrides: Any
) -> tuple[Layout, dict[str, list[float]]]:
    """A planned layout, and the metrics of ten steps as long as they are predicted."""
    proposal = propose(wanted, lambda *_: True)[rank]
    layout = load_text(proposal.text, "planned", [f"{key}={value}" for key, value in overrides.items()]).layout
    time = proposal.time
    wave = [1 + noise * math.sin(step) for step in range(11)]
    longest = wanted.longest_of(wanted.samples_per_step)
    series = {
        "time/update_actor": [99.0, *(0.8 * time.train_s * each for each in wave[1:])],
        "time/measure": [9.0, *(0.2 * time.train_s * each for each in wave[1:])],
        "time/generate": [99.0, *(time.generate_s * each for each in wave[1:])],
        "response_length": [wanted.mean_tokens] * 11,
        "response_length_max": [longest] * 11,
    }
    return layout, series


@pytest.mark.parametrize("training", [0.2, 0.5])
@pytest.mark.parametrize("decode", [0.3, 0.45])
def test_the_rates_that_a_step_was_computed_with_are_found_back(training: float, decode: float) -> None:
    layout, series = run_of(request(rates=Rates(training=training, decode=decode)), noise=0.05)
    found = calibrate(layout, series, {}, "here")
    assert found.rates.training == pytest.approx(training, rel=0.05)
    assert found.rates.decode == pytest.approx(decode, rel=0.1)
    assert (found.card, found.family, found.steps, found.rates.source) == ("H100-SXM-80GB", "dense", 10, "here")
    assert found.training.before_s != pytest.approx(found.training.measured_s, rel=0.05)


def test_a_run_whose_answers_a_reward_model_scores_tells_its_rates_too() -> None:
    wanted = request(rates=Rates(training=0.3, decode=0.3))
    layout, series = run_of(wanted, **{"roles.reward_model.model": "Qwen/Qwen2.5-0.5B"})
    assert calibrate(layout, series, {}, "here").rates.training == pytest.approx(0.3, rel=0.05)


def test_the_spread_of_lengths_is_read_from_the_longest_one() -> None:
    narrow = request(rates=Rates(training=0.3, decode=0.3), response_spread=40.0)
    found = calibrate(*run_of(narrow), {}, "here")
    assert found.rates.training == pytest.approx(0.3, rel=0.05)
    assert found.rates.decode == pytest.approx(0.3, rel=0.05)


def test_packed_rows_are_as_long_as_the_prompts_that_a_run_had() -> None:
    wanted = request(rates=Rates(training=0.3, decode=0.3), prompt_tokens=2048)
    layout, series = run_of(wanted, **{"lengths.pack": "8192", "roles.learner.micro_batch": "1"})
    way, had = training_way(layout, layout.roles.learner), structs.replace(wanted, prompt_tokens=300)
    series["time/update_actor"], series["time/measure"] = [train_s(had, way)[0]] * 11, [0.0] * 11
    series["time/total"], tokens = [100.0] * 11, wanted.samples_per_step * (300 + wanted.mean_tokens)
    series["learner_tokens_per_second_step"] = [tokens / 100] * 11
    assert calibrate(layout, series, {}, "here").rates.training == pytest.approx(0.3, rel=0.05)
    del series["learner_tokens_per_second_step"]
    assert calibrate(layout, series, {}, "here").training.share is None, "with the longest prompts it was too fast"


def _as_in(way: Training, learner: Learner) -> Learner:
    return structs.replace(
        learner,
        pool="",
        gpus=list(way.gpus),
        zero_stage=way.zero_stage,
        micro_batch=way.micro_batch,
        gradient_checkpointing=way.gradient_checkpointing,
    )


def test_a_phase_that_links_bound_says_nothing_of_the_card() -> None:
    """One short row at a time: gathering 7 billion weights takes longer than any arithmetic with them."""
    short = request(nodes=2, gpus_per_node=4, prompt_tokens=64, response_tokens=64, response_mean=32.0)
    layout, series = run_of(short)
    way = Training(gpus=(4, 4), zero_stage=3, micro_batch=1, gradient_checkpointing=False)
    series = {**series, "time/update_actor": [1.01 * train_s(short, way)[0]] * 11, "time/measure": [0.0] * 11}
    layout = structs.replace(layout, roles=structs.replace(layout.roles, learner=_as_in(way, layout.roles.learner)))
    with pytest.raises(RltuiError, match="Training: something else"):
        calibrate(layout, {**series, "time/generate": [0.0] * 11}, {}, "here")


def test_what_a_run_cannot_tell_stays_as_it_was() -> None:
    layout, series = run_of(request(rates=Rates(training=0.5, decode=0.3), async_steps=1))
    known = {"H100-SXM-80GB": {"dense": Rates(training=0.1, decode=0.44)}}
    found = calibrate(layout, series, known, "here")  # type: ignore[arg-type]
    assert found.rates.training == pytest.approx(0.5, rel=0.05)
    assert found.rates.decode == 0.44
    assert "run ahead" in found.decode.reason
    series["time/generate"] = [math.nan] * 11
    again = calibrate(layout, series, {}, "here")
    assert again.rates.decode == PUBLISHED["dense"].decode


def test_times_that_no_card_can_reach_and_waits_say_nothing_of_it() -> None:
    layout, series = run_of(request())
    fast = {**series, **{name: [1e-3] * 11 for name in ("time/update_actor", "time/measure", "time/generate")}}
    with pytest.raises(RltuiError, match="less than the card's data sheet allows"):
        calibrate(layout, fast, {}, "here")
    slow = {**series, **{name: [1e9] * 11 for name in ("time/update_actor", "time/measure", "time/generate")}}
    with pytest.raises(RltuiError, match="something else"):
        calibrate(layout, slow, {}, "here")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"hardware.gpu": "cpu"}, "no card"),
        ({"hardware.gpu": "Potato-9000"}, "no card"),
        ({"roles.learner.model": "nobody/knows"}, "shape of the model"),
        ({"hardware.more": "{b: {roles: [rollout], nodes: 1, gpus_per_node: 4}}"}, "several kinds"),
        ({"roles.learner.lora_rank": "8"}, "adapters"),
        ({"roles.learner.offload": "optimizer"}, "host memory"),
        ({"roles.learner.zero_stage": "1"}, "below stage 2"),
    ],
)
def test_runs_that_plan_does_not_predict_are_refused(overrides: dict[str, str], said: str) -> None:
    layout, series = run_of(request(), **overrides)
    with pytest.raises(RltuiError, match=said):
        calibrate(layout, series, {}, "here")


def test_few_steps_are_refused() -> None:
    layout, series = run_of(request())
    with pytest.raises(RltuiError, match="It has 3 steps"):
        calibrate(layout, {name: values[:3] for name, values in series.items()}, {}, "here")


@pytest.fixture
def run(own_folders: Path) -> Callable[[Layout, dict[str, list[float]]], str]:
    """Put a run on this machine's disk; returns its id."""

    def put(layout: Layout, series: dict[str, list[float]]) -> str:
        from rltui.layout.load import dump_layout

        attempt = ensure_private(run_root()) / "grpo-1" / "attempts" / "01"
        attempt.mkdir(parents=True)
        about = {"name": "grpo", "algorithm": "grpo", "cluster": "local", "created_at": 1.0, "nodes": 2}
        attempt.parents[1].joinpath("run.json").write_text(json.dumps(about | {"gpus_per_node": 4, "gpu": "H100"}))
        attempt.joinpath("job.json").write_text("{}")
        attempt.joinpath("end.json").write_text(json.dumps({"outcome": "finished", "exit_code": 0, "at": 2.0}))
        attempt.joinpath("layout.yaml").write_text(dump_layout(layout))
        steps = [{name: values[step] for name, values in series.items()} for step in range(11)]
        lines = [json.dumps({"step": step, "time": float(step), **values}) for step, values in enumerate(steps)]
        attempt.joinpath("metrics.jsonl").write_text("\n".join(lines) + "\n")
        return "grpo-1"

    return put


def test_the_verb_writes_what_plan_then_takes(run: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    run_id = run(*run_of(request(rates=Rates(training=0.2, decode=0.3))))
    assert main(["calibrate", run_id, "--dry-run"]) == 0
    assert "nothing was written" in capsys.readouterr().out
    assert read_calibration(state_dir()) == {}
    assert main(["calibrate", run_id]) == 0
    out = capsys.readouterr().out
    assert "H100-SXM-80GB, dense models, 10 steps" in out
    assert "of the peak FLOP/s" in out
    written = read_calibration(state_dir())["H100-SXM-80GB"]["dense"]
    assert written.training == pytest.approx(0.2, rel=0.05)
    assert written.source == "measured in grpo-1 on local"
    assert main(["plan", "--model", SEVEN, "--gpus", "1x8xH100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trust"] == "measured in grpo-1 on local"
    assert main(["plan", "--model", SEVEN, "--gpus", "1x8xH100"]) == 0
    assert "error: " in (out := capsys.readouterr().out), "the range is narrower, and there"
    assert "within a factor of 1.3" in out
    assert main(["calibrate", run_id, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["training"]["before_s"] == pytest.approx(told["training"]["measured_s"], rel=0.02), "it is known by now"


def test_a_run_is_planned_by_the_lengths_that_it_had(
    run: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    layout, series = run_of(request(response_mean=700.0), rank=1)
    run_id = run(layout, series)
    assert main(["plan", "--run", run_id, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["now"]["step_s"] == pytest.approx(
        series["time/generate"][1] + series["time/update_actor"][1] / 0.8, rel=0.2
    )
    assert told["proposals"][0]["time"]["step_s"] < told["now"]["step_s"]
    assert main(["plan", "--run", run_id]) == 0
    out = capsys.readouterr().out
    assert "responses: mean 700," in out
    assert "assumed: --response-mean" not in out
    assert out.splitlines()[-1].startswith(f"#1: rltui resubmit {run_id} ")
    path = run_root() / run_id / "attempts" / "01" / "metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    assert main(["plan", "--run", run_id]) == 0
    assert "lengths of responses are assumed. It has 2 steps" in capsys.readouterr().err


def test_what_others_measured_is_kept_and_a_broken_file_is_not_written_over(
    run: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = run(*run_of(request(rates=Rates(training=0.2, decode=0.3))))
    path = ensure_private(state_dir()) / "calibration.json"
    own = {"training": 0.3, "decode": 0.5, "source": "mine"}
    path.write_text(json.dumps({"H100-SXM-80GB": {"moe": own}, "B200": {"dense": own}}))
    assert main(["calibrate", run_id]) == 0
    found = read_calibration(state_dir())
    assert found["B200"]["dense"].source == found["H100-SXM-80GB"]["moe"].source == "mine"
    assert found["H100-SXM-80GB"]["dense"].training == pytest.approx(0.2, rel=0.05)
    path.write_text('{"H100')
    assert main(["calibrate", run_id]) == 2
    assert "Correct or remove the file" in capsys.readouterr().err
    assert path.read_text() == '{"H100'


def test_a_run_that_cannot_tell_ends_with_its_reason(
    run: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    layout, series = run_of(request())
    run_id = run(structs.replace(layout, algorithm="opd"), series)
    assert main(["calibrate", run_id]) == 1
    assert "cannot tell what its cards reach" in capsys.readouterr().err


def slower(series: dict[str, list[float]], name: str, times: float) -> dict[str, list[float]]:
    return {**series, name: [times * value for value in series[name]]}


def test_a_phase_far_behind_plan_is_named_and_one_within_its_error_is_not() -> None:
    small = "Qwen/Qwen3-1.7B"
    layout, series = run_of(request(model_name=small, model=find_model(small)))
    assert behind_plan(layout, series, {}) == ()
    assert behind_plan(layout, slower(series, "time/update_actor", 2.0), {}) == ()
    ((phase, measured_s, planned_s, factor),) = behind_plan(layout, slower(series, "time/update_actor", 4.0), {})
    assert (phase, factor) == ("training", 1.6)
    assert measured_s == pytest.approx(3.4 * planned_s, rel=0.01)  # 4 of the 0.8, and the measuring pass as it was
    assert [one[0] for one in behind_plan(layout, slower(series, "time/generate", 4.0), {})] == ["generation"]
    ahead = load_text(*ahead_of(layout)).layout
    assert behind_plan(ahead, slower(series, "time/generate", 9.0), {}) == ()


def ahead_of(layout: Layout) -> tuple[str, str, list[str]]:
    return yaml.safe_dump(msgspec.to_builtins(layout)), "ahead", ["train.async_steps=1"]


def test_the_clusters_own_rates_tell_a_slow_phase_sooner_than_published_ones() -> None:
    layout, series = run_of(request())
    late = slower(series, "time/generate", 2.1)
    assert behind_plan(layout, late, {}) == ()
    own: Any = {"H100-SXM-80GB": {"dense": PUBLISHED["dense"]}}
    assert [one[0] for one in behind_plan(layout, late, own)] == ["generation"]
