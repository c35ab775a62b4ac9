"""Metrics of several attempts as one set of curves, thinned without losing what a chart shows."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watch_support import append, attempt_of

import rltui.api as rltui
from rltui.cli.main import main
from rltui.cluster.relay_client import RelayClient
from rltui.onnode.metric_names import ALIASES, canonical, canonical_values
from rltui.watch.lines import follow
from rltui.watch.metrics import MAX_POINTS, MAX_SERIES, Curves, MetricsReader, parse_metrics
from rltui.watch.snapshots import MetricsSnapshot


def read(reader: MetricsReader, client: RelayClient, attempts: list[int]) -> MetricsSnapshot:
    follow(client, reader.lines.newest(client, attempts))
    return reader.snapshot()


def curves_of(values: list[float]) -> Curves:
    curves = Curves()
    for step, value in enumerate(values):
        curves.add(step, {"x": value})
    return curves


def same(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return len(one) == len(other) and all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("count", [0, 1, 2, MAX_POINTS])
def test_few_points_stay_as_they_are(count: int) -> None:
    values = [float(number % 7) for number in range(count)]
    steps, series = curves_of(values).thinned()
    assert steps == tuple(range(count))
    assert series.get("x", ()) == tuple(values)


@pytest.mark.parametrize("count", [MAX_POINTS + 1, MAX_POINTS + 2, 1000, 1023, 1024, 1025, 5000, 65_537])
def test_many_points_are_thinned_with_ends_and_spikes_kept(count: int) -> None:
    values = [math.sin(number / 50) for number in range(count)]
    values[0], values[-1], values[count // 3], values[count // 2] = 0.5, 0.25, 9.0, -9.0
    steps, series = curves_of(values).thinned()
    assert MAX_POINTS // 4 < len(steps) <= MAX_POINTS
    assert len(series["x"]) == len(steps)
    assert list(steps) == sorted(set(steps))
    assert (steps[0], steps[-1]) == (0, count - 1)
    assert (series["x"][0], series["x"][-1]) == (0.5, 0.25)
    assert (max(series["x"]), min(series["x"])) == (9.0, -9.0)
    width = 2 * count / MAX_POINTS
    assert abs(steps[series["x"].index(9.0)] - count // 3) <= 2 * width


numbers = st.floats(-1e300, 1e300) | st.sampled_from([math.nan, math.inf, -math.inf])


@settings(max_examples=40, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=60), st.integers(1, 60), st.integers(1, 500))
def test_thinning_again_and_again_is_thinning_once(values: list[float], repeats: int, every: int) -> None:
    values = values * repeats
    growing = Curves()
    for step, value in enumerate(values):
        growing.add(step, {"x": value})
        if step % every == 0:
            growing.thinned()
    steps, series = growing.thinned()
    assert steps == curves_of(values).thinned()[0]
    assert same(series["x"], curves_of(values).thinned()[1]["x"])
    finite = [value for value in values if not math.isnan(value)]
    shown = [value for value in series["x"] if not math.isnan(value)]
    assert (max(shown, default=0), min(shown, default=0)) == (max(finite, default=0), min(finite, default=0))


def test_a_step_that_comes_again_drops_what_came_after_it() -> None:
    curves = curves_of([float(step) for step in range(2000)])
    curves.thinned()
    curves.add(1000, {"x": -1.0, "y": 5.0})
    steps, series = curves.thinned()
    assert steps[-1] == 1000
    assert series["x"][-1] == -1.0
    assert max(series["x"]) == 999.0
    assert math.isnan(series["y"][0])


def test_names_without_end_are_not_kept() -> None:
    curves = Curves()
    for step in range(2 * MAX_SERIES):
        curves.add(step, {f"name {step}": 1.0})
    assert len(curves.thinned()[1]) == MAX_SERIES


def test_a_run_s_metrics_are_followed(client: RelayClient, tmp_path: Path) -> None:
    path = tmp_path / "attempts/01/metrics.jsonl"
    reader = MetricsReader(str(tmp_path))
    assert read(reader, client, [1]).steps == ()
    append(path, {"step": 1, "time": 100.5, "reward": 0.25, "loss": 1}, {"step": 2, "time": 101.5, "reward": 0.5})
    first = read(reader, client, [1])
    assert first.steps == (1, 2)
    assert first.series["reward"] == (0.25, 0.5)
    assert math.isnan(first.series["loss"][1])
    assert first.latest == {"reward": 0.5, "loss": 1.0}
    assert first.taken_at == 101.5
    assert read(reader, client, [1]) is first
    append(path, b'{"step": 3, "rew')
    assert read(reader, client, [1]) is first
    append(path, b'ard": 0.75}\n')
    assert read(reader, client, [1]).series["reward"] == (0.25, 0.5, 0.75)


def test_a_resumed_attempt_goes_on_from_its_checkpoint(client: RelayClient, tmp_path: Path) -> None:
    append(tmp_path / "attempts/01/metrics.jsonl", *({"step": step, "reward": step / 100} for step in range(1, 71)))
    reader = MetricsReader(str(tmp_path))
    assert read(reader, client, [1]).steps[-1] == 70
    append(tmp_path / "attempts/02/metrics.jsonl", {"step": 51, "reward": 0.9})
    snapshot = read(reader, client, [1, 2])
    assert snapshot.steps == tuple(range(1, 52))
    assert snapshot.series["reward"][-2:] == (0.5, 0.9)
    assert snapshot.latest["reward"] == 0.9
    assert read(MetricsReader(str(tmp_path)), client, [1, 2]).series == snapshot.series


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        (b'{"step": 3, "reward": 1, "note": "x", "ok": true, "none": null, "deep": {"a": 1}}', (3, {"reward": 1.0})),
        (b'\0\0{"step": 3.0, "scores": 2}\0', (3, {"reward": 2.0})),
        (b'{"training_step": 7, "scores": 1, "reward": 2}', (7, {"reward": 2.0})),
        (b'{"reward": 2, "scores": 1, "_step": 0}', (0, {"reward": 2.0})),
        (b'{"step": 1, "a\\u001b[31mb": 1}', (1, {"ab": 1.0})),
        (b'{"reward": 1}', None),
        (b'{"step": -1}', None),
        (b'{"step": NaN}', None),
        (b'{"step": 1e300}', None),
        (b'{"step": "1"}', None),
        (b"\xff\xfe garbage", None),
        (b"", None),
    ],
)
def test_lines_of_metrics(line: bytes, parsed: object) -> None:
    assert parse_metrics(line) == parsed


def test_numbers_that_json_does_not_know_are_kept_out_of_the_latest(client: RelayClient, tmp_path: Path) -> None:
    append(tmp_path / "attempts/01/metrics.jsonl", {"step": 1, "loss": 2.0}, b'{"step": 2, "loss": NaN}\n')
    snapshot = read(MetricsReader(str(tmp_path)), client, [1])
    assert math.isnan(snapshot.series["loss"][1])
    assert snapshot.latest == {"loss": 2.0}


def test_the_table_of_names_is_one_step_deep() -> None:
    assert not set(ALIASES) & set(ALIASES.values())
    assert canonical("timing_s/gen") == "time/generate"
    assert canonical("something/else") == "something/else"
    assert canonical_values({"timing_s/gen": 1, "time/getting_response": 2}) == {"time/generate": 1.0}


def test_the_verb_computes_over_every_step(own_folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = attempt_of("grpo-tiny-1a2b", created_at=1_793_000_000.0)
    values = [100.0 if step % 8 < 2 else 1.0 for step in range(1, 5001)]  # of a thinned curve, half are spikes
    lines = (json.dumps({"step": step, "loss": value}) for step, value in enumerate(values, start=1))
    path.joinpath("metrics.jsonl").write_text("\n".join(lines) + "\n")
    path.joinpath("stage.json").write_text(json.dumps({"stage": "ended", "step": 5000}))
    assert main(["metrics", "grpo-tiny-1a2b"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["loss", "100", "1", "1", "100"] in rows
    assert main(["metrics", "grpo-tiny-1a2b", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["series"]["loss"] == values
    with rltui.open("local") as session:
        assert session.run("grpo-tiny-1a2b").metrics().series["loss"] == tuple(values)
