"""``rltui compare``: runs side by side."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from watch_support import attempt_of

from rltui.cli.main import main
from rltui.layout.load import dump_layout, load_layout
from rltui.layout.presets import resolve
from rltui.paths import run_root
from rltui.service.compare import COLOURS, spent, usual_metrics
from rltui.watch.history import StepTime
from rltui.watch.snapshots import AttemptHistory, RunHistory


def make_run(run_id: str, steps: int, reward: float, *words: str, step_s: float = 1.0, **phases: float) -> None:
    """A finished run of this machine, whose reward rises by ``reward`` a step of ``step_s`` with these phases."""
    attempt = attempt_of(run_id)
    attempt.joinpath("layout.yaml").write_text(dump_layout(load_layout(resolve("local/grpo-tiny"), words).layout))
    attempt.joinpath("end.json").write_text(json.dumps({"outcome": "finished", "exit_code": 0, "at": 99.0}))
    attempt.joinpath("job.json").write_text(json.dumps({"argv": ["python"], "uuid": run_id}))
    lines = [{"step": step, "time": 10.0 + step * step_s, "reward": step * reward} for step in range(1, steps + 1)]
    extra = {"time/total": step_s} if reward > 0.01 else {}
    extra |= {f"time/{name}": seconds for name, seconds in phases.items()}
    attempt.joinpath("metrics.jsonl").write_text("".join(json.dumps(line | extra) + "\n" for line in lines))


@pytest.fixture(autouse=True)
def runs(own_folders: Path) -> None:
    make_run("grpo-tiny-aaaa", 40, 0.01)
    make_run("grpo-tiny-bbbb", 20, 0.02, "train.prompts_per_step=6", "train.seed=5")


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["compare", *words]) == 0
    return capsys.readouterr().out


def test_settings_that_differ_and_metrics_at_the_last_step_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told(capsys, "grpo-tiny-aaaa", "grpo-tiny-bbbb", "--json"))["comparison"]
    assert found["runs"] == ["grpo-tiny-aaaa", "grpo-tiny-bbbb"]
    settings = {row["name"]: row["values"] for row in found["settings"]}
    assert settings["train.seed"][1] == 5
    assert settings["train.prompts_per_step"][1] == 6
    assert all(key.startswith("train.") for key in settings)
    assert found["step"] == 20
    metrics = {row["name"]: row["values"] for row in found["metrics"]}
    assert metrics["reward"] == pytest.approx([0.155, 0.31])  # medians of steps 11 to 20
    assert metrics["time/total"] == [None, 1.0]
    totals = {row["name"]: row["values"] for row in found["totals"]}
    assert totals["last step"] == [40, 20]


def test_runs_are_picked_by_a_filter_as_in_the_cockpit(capsys: pytest.CaptureFixture[str]) -> None:
    make_run("opd-cccc", 5, 0.02)
    found = json.loads(told(capsys, "--where", "grpo-tiny- state:finished", "--json"))["comparison"]
    assert sorted(found["runs"]) == ["grpo-tiny-aaaa", "grpo-tiny-bbbb"]
    assert main(["ps", "--where", "opd-c", "--json"]) == 0
    assert [run["run_id"] for run in json.loads(capsys.readouterr().out)["runs"]] == ["opd-cccc"]
    assert main(["ps", "--where", "state:failed"]) == 0
    assert "No run fits" in capsys.readouterr().err
    assert main(["ps", "--where", ""]) == 2


def test_others_are_held_against_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    shown = told(capsys, "grpo-tiny-aaaa", "grpo-tiny-bbbb")
    (reward,) = [line for line in shown.splitlines() if line.startswith("reward")]
    assert reward.split() == ["reward", "0.155", "0.31", "(+100%)"]
    assert "up to step 20" in shown
    (total,) = [line for line in shown.splitlines() if line.startswith("time/total")]
    assert total.split() == ["time/total", "–", "1"]
    again = told(capsys, "grpo-tiny-bbbb", "grpo-tiny-aaaa", "--metric", "reward")
    assert "(-50%)" in again
    assert "time/total" not in again
    assert told(capsys, "grpo-tiny-aaaa", "--baseline", "grpo-tiny-b", "--metric", "reward") == again
    assert told(capsys, "grpo-tiny-aaaa", "grpo-tiny-bbbb", "--baseline", "grpo-tiny-b", "--metric", "reward") == again
    assert "against grpo-tiny-bbbb:" in again


def test_curves_as_csv_have_a_line_a_run_and_step(capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(told(capsys, "grpo-tiny-aaaa", "grpo-tiny-bbbb", "--csv"))))
    assert len(rows) == 60
    assert rows[0] == {"run": "grpo-tiny-aaaa", "step": "1", "reward": "0.01", "time/total": ""}
    assert rows[-1]["time/total"] == "1.0"


def test_at_the_same_time_a_faster_run_has_done_more_steps(capsys: pytest.CaptureFixture[str]) -> None:
    make_run("grpo-tiny-slow", 30, 0.02, step_s=2.0)
    words = ("grpo-tiny-bbbb", "grpo-tiny-slow", "--axis", "time")
    found = json.loads(told(capsys, *words, "--json"))["comparison"]
    assert (found["axis"], found["at"], found["steps"]) == ("time", 20.0, [20, 10])
    metrics = {row["name"]: row["values"] for row in found["metrics"]}
    assert metrics["reward"] == pytest.approx([0.31, 0.11])  # medians of steps 11 to 20 and 1 to 10
    shown = told(capsys, *words)
    assert "up to 0.00556 hours of training" in shown
    rows = list(csv.DictReader(io.StringIO(told(capsys, *words, "--csv"))))
    assert [row["time_s"] for row in rows[:2] + rows[20:22]] == ["1.0", "2.0", "2.0", "4.0"]
    assert main(["compare", *words[:2], "--axis", "gpu_hours", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert float(rows[-1]["gpu_hours"]) == pytest.approx(60 / 3600)


def attempt(number: int, started_at: float, ended_at: float, slots: int) -> AttemptHistory:
    return AttemptHistory(number=number, started_at=started_at, ended_at=ended_at, slots=slots)


def test_waits_between_attempts_cost_nothing_and_start_up_and_steps_done_again_do() -> None:
    attempts = (
        attempt(1, 0.0, 50.0, 8),
        attempt(2, 100.0, 190.0, 8),
        attempt(3, 1000.0, 1030.0, 8),
        attempt(4, 2000.0, 2100.0, 4),
    )
    times = {
        2: {1: StepTime(130.0, 10.0), 2: StepTime(150.0, 10.0), 3: StepTime(160.0, 10.0)},
        4: {3: StepTime(2040.0, 10.0), 4: StepTime(2050.0, None), 5: StepTime(None, 10.0)},
    }
    found = spent((1, 2, 3, 4, 5), RunHistory(attempts=attempts), times)
    # the first step began at 120; attempt 2 held its GPUs for 70 s from there, attempt 3, without a step, for 30 s
    assert found["time"] == pytest.approx((10.0, 30.0, 140.0, 150.0, math.nan), nan_ok=True)
    hours = (10 * 8, 30 * 8, 100 * 8 + 40 * 4, 100 * 8 + 50 * 4, math.nan)
    assert found["gpu_hours"] == pytest.approx([each / 3600 for each in hours], nan_ok=True)
    assert spent((1,), RunHistory(attempts=attempts), {})["time"] == pytest.approx((math.nan,), nan_ok=True)


def test_where_a_step_goes_stands_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    make_run("grpo-tiny-both", 4, 0.02, step_s=8.0, generate=4.0, train=2.0, learner_idle=3.0)
    make_run("grpo-tiny-half", 4, 0.02, step_s=5.0, generate=4.0, drain=1.0)
    path = run_root() / "grpo-tiny-half/attempts/01/metrics.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], lines[-1][:-1] + ', "time/saving": 2.0}']) + "\n")
    words = ("grpo-tiny-both", "grpo-tiny-half")
    found = json.loads(told(capsys, *words, "--json"))["comparison"]
    assert [(row["name"], row["values"]) for row in found["phases"]] == [
        ("time/generate", [4.0, 4.0]),
        ("time/train", [2.0, None]),
        ("time/saving", [None, 0.5]),  # 2 s in one of four steps
        ("time/drain", [None, 1.0]),
        ("other", [2.0, None]),
    ]
    beside = {row["name"]: row["values"] for row in found["beside"]}
    assert beside == {"time/total": [8.0, 5.0], "time/learner_idle": [3.0, None]}
    shown = [line.split() for line in told(capsys, *words).splitlines()]
    assert ["generate", "4", "█" * 12, "4", "█" * 12] in shown
    assert ["train", "2", "█" * 6, "–"] in shown
    assert ["learner_idle", "3", "–"] in shown


def test_a_run_whose_steps_have_no_time_has_no_place_on_that_axis(capsys: pytest.CaptureFixture[str]) -> None:
    (run_root() / "grpo-tiny-bbbb/attempts/01/metrics.jsonl").write_text('{"step": 1, "reward": 0.5}\n')
    assert main(["compare", "grpo-tiny-aaaa", "grpo-tiny-bbbb", "--axis", "time"]) == 2
    said = capsys.readouterr().err
    assert "grpo-tiny-bbbb does not say when its steps ended" in said
    assert "--axis step" in said


def test_hours_of_gpus_and_of_cpu_slots_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    about = run_root() / "grpo-tiny-bbbb/run.json"
    about.write_text(about.read_text().replace('"gpu": "cpu"', '"gpu": "H100-80GB"'))
    assert main(["compare", "grpo-tiny-aaaa", "grpo-tiny-bbbb", "--axis", "gpu_hours"]) == 2
    assert "One run has GPUs and another CPU slots" in capsys.readouterr().err


def test_runs_that_are_the_same_and_runs_without_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    make_run("grpo-tiny-cccc", 0, 0.01)
    shown = told(capsys, "grpo-tiny-aaaa", "grpo-tiny-cccc")
    assert "The settings are the same." in shown
    assert "no step that all of them have yet" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("grpo-tiny-aaaa",), "two runs"),
        (("grpo-tiny-aaaa", "grpo-tiny-aa"), "two runs"),
        (("grpo-tiny-aaaa", "grpo-tiny-bbbb", "--metric", "rewrd"), "No run has the metric rewrd"),
        (("grpo-tiny-aaaa", "nosuch"), "nosuch"),
    ],
)
def test_what_cannot_be_compared_is_said(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *words]) == 2
    assert said in capsys.readouterr().err


PAIR = ("compare", "grpo-tiny-aaaa", "grpo-tiny-bbbb")


def drawn(tmp_path: Path, *words: str, runs: tuple[str, ...] = PAIR, name: str = "a.svg") -> tuple[bytes, list[str]]:
    """The file, and the texts in it."""
    path = tmp_path / name
    assert main([*runs, "--svg", str(path), *words]) == 0
    text = path.read_bytes()
    return text, [(one.text or "").strip() for one in ElementTree.fromstring(text).iter() if one.tag.endswith("}text")]


def test_a_panel_a_metric_phases_and_a_line_a_run_the_same_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run("grpo-tiny-$x_1$", 8, 0.02, step_s=3.0, generate=2.0, train=0.5)
    three = (*PAIR, "grpo-tiny-$x_1$")
    svg, texts = drawn(tmp_path, "--axis", "time", runs=three)
    assert {"reward", "step time, s", "minutes of training", "generate", "train", "other"} <= set(texts)
    assert texts.count("grpo-tiny-$x_1$") == 2, "in the legend and beside its bar, and $ is no formula"
    assert all(colour.lower() in svg.decode() for colour in COLOURS[:3])
    assert drawn(tmp_path, "--axis", "time", runs=three, name="b.svg")[0] == svg
    assert "grpo-tiny-aaaa" in capsys.readouterr().out, "the comparison is printed as well"


def test_metrics_that_were_chosen_and_the_png(tmp_path: Path) -> None:
    _, texts = drawn(tmp_path, "--metric", "reward", "--axis", "gpu_hours", "--png", str(tmp_path / "a.png"))
    assert "CPU slot-hours" in texts
    assert "step time, s" not in texts
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_rate_that_a_run_has_is_drawn() -> None:
    assert usual_metrics({"reward", "actor_tokens_per_second", "x"}) == ["reward", "actor_tokens_per_second"]


def test_what_cannot_be_drawn_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*PAIR, "--png", "a.jpg"]) == 2
    assert "has to end with .png" in capsys.readouterr().err
    assert main([*PAIR, "--png", str(tmp_path / "nowhere/a.png")]) == 1
    assert "cannot be written" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main([*PAIR, "--png", str(tmp_path / "b.png")]) == 2
    said = capsys.readouterr()
    assert "pip install 'rltui[pictures]'" in said.err
    assert not (tmp_path / "b.png").exists()


def test_long_runs_are_compared_by_their_steps_and_not_by_the_points_of_a_chart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("dddd", "eeee"):
        make_run(f"grpo-tiny-{name}", 0, 0.0)
        lines = [{"step": step, "time": 10.0 + step, "loss": 100.0 if step % 50 == 0 else 1.0} for step in range(3001)]
        path = run_root() / f"grpo-tiny-{name}" / "attempts/01/metrics.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ("grpo-tiny-dddd", "grpo-tiny-eeee")
    found = json.loads(told(capsys, *words, "--json"))["comparison"]
    assert {row["name"]: row["values"] for row in found["metrics"]}["loss"] == [1.0, 1.0]
    rows = list(csv.DictReader(io.StringIO(told(capsys, *words, "--csv"))))
    assert [float(row["loss"]) for row in rows if row["run"] == "grpo-tiny-dddd"] == [line["loss"] for line in lines]
