"""Dialects: what each training system prints, and what comes out as step and metrics."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from dialect_cases import SYSTEMS

from rltui.dialects.load import load_dialects, read_dialect, recognised
from rltui.errors import RltuiError
from rltui.onnode import rundir
from rltui.onnode.attempt_runner import last_error
from rltui.onnode.line_reader import LineReader
from rltui.onnode.metric_sources import Sources
from rltui.onnode.script_output import Follower, fill, parse_values
from rltui.onnode.script_run import read_to_the_end
from rltui.watch.metrics import parse_metrics

DIALECTS = load_dialects()


def follow(attempt: Path, name: str, lines: Sequence[str]) -> Follower:
    log = attempt / rundir.OUT_LOG
    log.write_text("".join(f"{line}\n" for line in lines))
    dialect = msgspec.to_builtins(DIALECTS[name])
    file = fill(dialect["metrics"]["file"], {"attempt": str(attempt)})
    sources = Sources(dialect["metrics"], file, str(attempt / "tensorboard"))
    follower = Follower(str(attempt), dialect, LineReader(str(log), also_returns=True), sources, lambda: 1.0)
    follower.look(is_last=True)
    return follower


def test_of_a_script_that_prints_faster_than_it_is_read_steps_are_told_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rltui.onnode.line_reader.CHUNK", 4096)
    monkeypatch.setattr("rltui.onnode.script_run.LOOK_BYTES", 4096)
    log = LineReader(str(tmp_path / rundir.OUT_LOG), also_returns=True)
    (tmp_path / rundir.OUT_LOG).write_text("".join(f"step {step}/999 loss 0.5\n" for step in range(1000)))
    follower = Follower(str(tmp_path), msgspec.to_builtins(DIALECTS["generic"]), log)
    told: list[tuple[str, str, int, int]] = []
    write_stage = rundir.write_stage

    def note(attempt: str, *stands: Any) -> None:
        told.append(stands)
        write_stage(attempt, *stands)

    monkeypatch.setattr(rundir, "write_stage", note)
    with subprocess.Popen(["true"]) as child:
        child.wait(10)
        read_to_the_end(child, follower, log)
    assert told[0][2:] == (999, 999), "the newest step is known before the metrics up to it are read"
    assert len({detail for _, detail, _, _ in told}) >= 5, "how far they are read is told as they are"
    assert told[-1] == ("training", "", 999, 999)


def test_a_script_goes_on_while_the_disk_takes_nothing_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LineReader(str(tmp_path / rundir.OUT_LOG), also_returns=True)
    (tmp_path / rundir.OUT_LOG).write_text("".join(f"step {step}/9 loss: 0.5\n" for step in range(1, 10)))
    follower = Follower(str(tmp_path), msgspec.to_builtins(DIALECTS["generic"]), log)
    append, refused = rundir.append_line, []

    def full_at_first(path: str, value: Any) -> None:
        if path.endswith(rundir.METRICS) and not refused:
            refused.append(path)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(path, value)

    monkeypatch.setattr(rundir, "append_line", full_at_first)
    with subprocess.Popen(["true"]) as child:
        child.wait(10)
        read_to_the_end(child, follower, log)
    assert refused
    lines = (tmp_path / rundir.METRICS).read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [*range(1, 10)]
    assert (tmp_path / rundir.EVENTS).read_text().count("cannot be written down: [Errno 28] No space left") == 1
    assert not last_error(str(tmp_path)), "it is not what ends the script"


@pytest.mark.parametrize("is_full_for_good", [False, True])
def test_a_full_disk_ends_no_script_and_gets_its_steps_once_it_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_full_for_good: bool
) -> None:
    monkeypatch.setattr("rltui.onnode.script_run.POLL_S", 0.01)
    log = LineReader(str(tmp_path / rundir.OUT_LOG), also_returns=True)
    (tmp_path / rundir.OUT_LOG).write_text("".join(f"step {step} loss=0.5\n" for step in range(10)))
    follower = Follower(str(tmp_path), msgspec.to_builtins(DIALECTS["generic"]), log)
    append_line, tries = rundir.append_line, 0

    def with_little_room(path: str, value: Any) -> None:
        nonlocal tries
        tries += 1
        if tries > 2:
            (tmp_path / "ended").touch()
        if path.endswith(rundir.METRICS) and (is_full_for_good or tries < 3):
            raise OSError(errno.ENOSPC, "No space left on device")
        append_line(path, value)

    monkeypatch.setattr(rundir, "append_line", with_little_room)
    waits = "timeout 60 sh -c 'until [ -e ended ]; do sleep 0.05; done'; exit 7"
    with subprocess.Popen(["sh", "-c", waits], cwd=tmp_path) as child:
        read_to_the_end(child, follower, log)
        assert child.wait(60) == 7
    metrics = tmp_path / rundir.METRICS
    written = [json.loads(line)["step"] for line in metrics.read_text().splitlines()] if metrics.exists() else []
    assert written == ([] if is_full_for_good else list(range(10)))
    assert (tmp_path / rundir.EVENTS).read_text().count("cannot be written down: [Errno 28]") == 1


def test_a_line_of_many_words_takes_no_longer_than_its_length() -> None:
    words = "so many words " * 20_000
    began = time.process_time()
    assert parse_values(f"{words}: loss = 3, a/b:1.5 - c:-2 at 12:30:05", "pairs") == {
        "loss": 3.0,
        "a/b": 1.5,
        "c": -2.0,
    }
    assert parse_values("answer: " + 20_000 * "9" + "x", "words") == {}  # as a model that loops says it
    assert parse_values(20_000 * "=1" + " loss=2", "pairs") == {"loss": 2.0}
    assert time.process_time() - began < 1.0


def metrics(attempt: Path) -> dict[int, dict[str, float]]:
    path = attempt / rundir.METRICS
    lines = path.read_bytes().splitlines() if path.exists() else []
    return {point[0]: point[1] for line in lines if (point := parse_metrics(line))}


@pytest.mark.parametrize("name", DIALECTS)
def test_progress_lines_become_steps_and_metrics_under_our_names(tmp_path: Path, name: str) -> None:
    system = SYSTEMS[name]
    follower = follow(tmp_path, name, system.lines)
    assert (follower.step, follower.steps) == system.at
    found = metrics(tmp_path)[system.at[0] or 0]
    assert {key: found.get(key) for key in system.values} == system.values
    stage = rundir.read_json(str(tmp_path / rundir.STAGE))
    assert stage is not None
    assert (stage["stage"], stage["step"]) == ("training", system.at[0])


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("[step 10 of 20] loss: 0.5 | reward: 1.0", {"loss": 0.5, "reward": 1.0}),
        (
            "step 10/20  loss 5e-1, mean reward -1.0 (kl 0.25)  998 tok/s  0.95 steps/s  took 3s",
            {"loss": 0.5, "mean reward": -1.0, "kl": 0.25},
        ),
    ],
)
def test_any_program_may_word_its_steps_as_people_do(tmp_path: Path, line: str, values: dict[str, float]) -> None:
    follower = follow(tmp_path, "generic", [line])
    assert (follower.step, follower.steps) == (10, 20)
    found = metrics(tmp_path)[10]
    assert {key: found.get(key) for key in values} == values


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_is_recognised_by_its_command(name: str) -> None:
    script = f"#!/bin/bash\n# verl and slime in a comment: main_ppo\n{SYSTEMS[name].command}\n"
    assert [one.name for one in recognised(script, DIALECTS.values())] == [name] * (name != "generic")


def test_each_dictionary_is_a_step_where_the_bar_is_not_drawn_each_time(tmp_path: Path) -> None:
    line = "{'loss': '0.5', 'reward': '0.25'}"
    follower = follow(tmp_path, "trl", ["  1%| | 4/100 [00:01<00:10, 1s/it]", line, line, line])
    assert follower.step == 6
    assert sorted(metrics(tmp_path)) == [4, 5, 6]


def test_numbers_that_come_before_their_step_is_told_are_that_steps(tmp_path: Path) -> None:
    line = "{'loss': '0.5', 'reward': '%s'}"
    began = "  0%| | 0/23 [00:00<?, ?it/s]"
    follow(tmp_path, "trl", [began, line % "0.25", " 91%|# | 21/23 [00:01<00:10, 1s/it]", line % "0.5"])
    assert {step: one["reward"] for step, one in metrics(tmp_path).items()} == {21: 0.25, 22: 0.5}


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_where_nobody_tells_steps_they_are_counted(tmp_path: Path, count: int) -> None:
    follow(tmp_path, "trl", ["{'loss': '0.5', 'reward': '0.25'}"] * count)
    assert sorted(metrics(tmp_path)) == list(range(1, count + 1))


def test_a_file_of_metrics_goes_before_the_console(tmp_path: Path) -> None:
    (tmp_path / "verl-metrics.jsonl").write_text(
        '{"step": 1, "data": {"critic/rewards/mean": 0.123456789, "note": "x"}}\n{"step": 2, "da'
    )
    follow(tmp_path, "verl", ["step:1 - critic/rewards/mean:0.123"])
    with (tmp_path / "verl-metrics.jsonl").open("a") as stream:
        stream.write('ta": {"critic/rewards/mean": 0.5}}\n')
    assert metrics(tmp_path)[1]["reward"] == 0.123456789
    fresh = follow(tmp_path, "verl", ["step:1 - critic/rewards/mean:0.123", "step:2 - critic/rewards/mean:0.4"])
    assert fresh.step == 2
    assert metrics(tmp_path)[2]["reward"] == 0.5


def test_where_a_system_tells_of_its_queues_is_noted_for_its_own_node(tmp_path: Path) -> None:
    line = "(ActorManager pid=7, ip=10.0.0.2) INFO - Dashboard server started at http://node7.example.org:41234"
    follow(tmp_path, "open-instruct", [line])
    told = json.loads((tmp_path / rundir.STATUS_ENDPOINT).read_text())
    assert (told["url"], told["host"], told["token"]) == ("http://127.0.0.1:41234", "node7", "")


def test_a_file_that_starts_anew_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    reader = LineReader(str(path))
    assert list(reader.read()) == []
    path.write_text("one\ntwo\nthr")
    assert list(reader.read()) == ["one", "two"]
    path.write_text("new\n")
    assert list(reader.read()) == ["new"]


@pytest.mark.parametrize(
    ("text", "kind", "values"),
    [
        ("{'a': inf, 'b': 1, 'c': -inf}", "python", {"a": float("inf"), "b": 1.0, "c": float("-inf")}),
        ("{'a': __import__('os').getpid()}", "python", {}),
        ("{" * 100_000, "python", {}),
        ("[1, 2]", "json", {}),
        ('{"a": true, "b": "2,000", "c": 3}', "json", {"b": 2000.0, "c": 3.0}),
        ("a:1 - b/c: -2.5e-3 | d=7", "pairs", {"a": 1.0, "b/c": -0.0025, "d": 7.0}),
        ("torch 2.13.0 at 10:11:12", "pairs", {}),
        ("loss 0.5 reward=1", "pairs", {"loss 0.5 reward": 1.0}),
        ("reward 0.9  2.3k tok/s  0.91 steps/s  kl -inf", "words", {"reward": 0.9, "kl": -float("inf")}),
        ("of all that was seen 7 times 12:30:01 ago", "words", {}),
    ],
)
def test_values_are_read_and_never_run(text: str, kind: str, values: dict[str, float]) -> None:
    assert parse_values(text, kind) == values


def test_hostile_output_is_survived(tmp_path: Path) -> None:
    noise = ["step:", "step:99999999999999999999 - x:1", "\x1b]0;title\x07", "{" * 5000, "Step 1: {", "}" * 10]
    for name in DIALECTS:
        follow(tmp_path, name, noise * 20)


def test_a_dialect_of_the_users_own_replaces_a_bundled_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "dialects"
    folder.mkdir()
    (folder / "mine.yaml").write_text("name: trl\nsummary: mine\nprogress: [{pattern: 'at (?P<step>\\d+)'}]\n")
    monkeypatch.setenv("RLTUI_CONFIG_DIR", str(tmp_path))
    assert load_dialects()["trl"].summary == "mine"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\nsummary: y\nadvances: []\n", "advances"),
        ("name: x\nsummary: y\nprogress: [{pattern: '('}]\n", "is no regular expression"),
        ("[", "is no dialect"),
    ],
)
def test_a_file_that_is_no_dialect_says_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(RltuiError, match=said):
        read_dialect(path)


def test_a_metric_called_time_is_not_when_the_step_ended(tmp_path: Path) -> None:
    follow(tmp_path, "openrlhf", ["Global step 1: {'time': 5.0, 'step': 99, 'reward': 1.0}"])
    record: dict[str, Any] = json.loads((tmp_path / rundir.METRICS).read_text())
    assert (record["time"], record["step"]) == (1.0, 1)
