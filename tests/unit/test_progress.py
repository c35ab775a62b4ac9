"""Whether an attempt stands still, by its own files."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from rltui.onnode import evidence, progress, rundir
from rltui.onnode.standstill_watch import StandstillWatch

NOW = 1_800_000_000.0


@pytest.fixture(autouse=True)
def unscaled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(progress.SCALE, raising=False)


def attempt(folder: Path, stage: str, since: float, steps: list[float], detail: str = "") -> str:
    record = {"stage": stage, "since": since, "detail": detail}
    (folder / rundir.STAGE).write_text(json.dumps(record))
    lines = [json.dumps({"step": number, "time": at}) for number, at in enumerate(steps, start=1)]
    (folder / rundir.METRICS).write_text("\n".join(['{"torn', *lines, '{"step": 9']))
    return str(folder)


@pytest.mark.parametrize(
    ("step_s", "waited_s", "stalls"),
    [(1.0, 599, False), (1.0, 601, True), (300.0, 1199, False), (300.0, 1201, True)],
)
def test_a_stall_is_relative_to_the_run(tmp_path: Path, step_s: float, waited_s: float, stalls: bool) -> None:
    steps = [NOW - waited_s - step_s * back for back in range(10, -1, -1)]
    said = progress.standstill(attempt(tmp_path, "training", steps[0], steps), NOW)
    assert bool(said) == stalls
    assert not stalls or f"no new step for {waited_s:.0f} s, a step takes {step_s:.1f} s" in said


def test_one_long_step_before_makes_the_next_one_no_stall(tmp_path: Path) -> None:
    steps = [NOW - 4000, NOW - 3990, NOW - 3000, NOW - 1500]
    assert not progress.standstill(attempt(tmp_path, "training", NOW - 5000, steps), NOW)


@pytest.mark.parametrize("stage", ["loading", "saving"])
def test_every_stage_has_its_own_deadline(tmp_path: Path, stage: str) -> None:
    assert not progress.standstill(attempt(tmp_path, stage, NOW - 3500, [NOW - 9000] * 4), NOW)
    assert f"stage {stage} lasts 3700 s" in progress.standstill(attempt(tmp_path, stage, NOW - 3700, []), NOW)


@pytest.mark.parametrize(
    ("dialect", "silent_s", "stalls"), [("verl", 3700, True), ("verl", 60, False), ("generic", 3700, False)]
)
def test_a_script_that_tells_no_step_loads_as_long_as_it_speaks_or_its_words_are_unknown(
    tmp_path: Path, dialect: str, silent_s: float, stalls: bool
) -> None:
    path = attempt(tmp_path, "loading", NOW - 9000, [])
    (tmp_path / rundir.SCRIPT_RUN).write_text(json.dumps({"dialect": {"name": dialect}}))
    (tmp_path / rundir.OUT_LOG).write_text("epoch 1\n")
    os.utime(tmp_path / rundir.OUT_LOG, (NOW - silent_s, NOW - silent_s))
    assert bool(progress.standstill(path, NOW)) == stalls


def sampled(folder: Path, *lines: dict[str, Any], age_s: float = 0.0, clock_s: float = 300.0) -> None:
    """Write what a node's sampler said a second apart, by a clock that is fast by ``clock_s``."""
    path = folder / "gpu-n1.jsonl"
    at = NOW - age_s
    first = at + clock_s - len(lines)
    path.write_text("".join(json.dumps({"t": first + number, **one}) + "\n" for number, one in enumerate(lines)))
    os.utime(path, (at, at))


def gpu(watts: int, pids: tuple[int, ...] = (7,)) -> dict[str, Any]:
    return {"gpus": [{"i": 0, "util": 100, "w": watts, "pids": list(pids)}]}


def memory(used_gib: float) -> dict[str, Any]:
    """A GPU of which nobody says who holds it."""
    return {"gpus": [{"i": 0, "util": 0, "w": 70, "mem": [used_gib, 79.65]}]}


def at_work(pid: int, percent: float) -> dict[str, Any]:
    return {"procs": [{"pid": pid, "cpu": percent}]}


SPINS = [{**gpu(210 + n % 3), **at_work(7, 100.0)} for n in range(30)]
"""A collective that never ends: a GPU and a core at 100 %, and nothing else."""


@pytest.mark.parametrize(
    ("lines", "works"),
    [
        (SPINS, False),
        ([gpu(70)] * 30, False),
        ([gpu(9), gpu(14)] * 15, False),
        ([gpu(watts) for watts in (640, 655, 400, 690)], True),
        ([{**one, "engines": [{"name": "8000", "running": 4, "tokens_per_second": 0.0}]} for one in SPINS], False),
        ([{**one, "engines": [{"name": "8000", "tokens_per_second": 912.5}]} for one in SPINS], True),
        ([{**one, **at_work(8, 97.0)} for one in SPINS], True),
        ([{**gpu(210, ()), **at_work(8, 97.0)} for _ in range(30)], False),
        ([{**memory(60.0), **at_work(8, 97.0)} for _ in range(30)], False),
        ([{**memory(0.5), **at_work(8, 97.0)} for _ in range(30)], True),
        ([{**memory(0.5), **at_work(8, 0.3)} for _ in range(30)], False),
        ([at_work(8, 97.0)] * 30, True),
        ([at_work(8, 12.0)] * 30, False),
        ([{"cpu": 100.0, **at_work(8, 12.0)} for _ in range(30)], True),
        ([{"cpu": 100.0, **at_work(8, 0.4)} for _ in range(30)], False),
        ([at_work(8, 0.3)] * 28 + [at_work(8, 97.0)] * 2, False),
        ([], False),
    ],
    ids=[
        "a collective spins",
        "a GPU rests",
        "a small GPU rests",
        "a GPU works",
        "an engine has requests and makes no token",
        "an engine makes tokens",
        "a compiler beside the GPU's own process",
        "nobody says who holds the GPU",
        "somebody holds the GPU, and nobody says who",
        "nobody holds the GPU yet, a busy process",
        "nobody holds the GPU yet, all wait",
        "no GPU, a busy process",
        "no GPU, a process at little work",
        "no GPU, a process that has to share its CPU",
        "no GPU, all wait beside the processes of others",
        "no GPU, all wait",
        "nothing was sampled",
    ],
)
def test_a_first_step_may_take_more_than_an_hour_where_something_works(
    tmp_path: Path, lines: list[dict[str, Any]], works: bool
) -> None:
    sampled(tmp_path, *lines)
    said = progress.standstill(attempt(tmp_path, "training", NOW - 9000, [NOW - 8000]), NOW)
    assert said == ("" if works else f"no new step for 8000 s, and fewer than 3 so far; {NOTHING_WORKS}")
    in_vain = attempt(tmp_path, "training", NOW - 6 * 3600 - 1, [])
    assert progress.standstill(in_vain, NOW).startswith("no new step for 21601 s"), "nothing takes that long"


NOTHING_WORKS = "no GPU, engine or process works, and no log grows"


@pytest.mark.parametrize(("silent_s", "stalls"), [(590, False), (610, True)])
def test_what_was_sampled_or_written_long_ago_is_no_work(tmp_path: Path, silent_s: float, stalls: bool) -> None:
    path = attempt(tmp_path, "training", NOW - 9000, [])
    sampled(tmp_path, gpu(640), gpu(300), age_s=silent_s)
    assert bool(progress.standstill(path, NOW)) == stalls
    sampled(tmp_path, *SPINS)
    (tmp_path / "learner-0.log").write_text("compiling\n")
    os.utime(tmp_path / "learner-0.log", (NOW - silent_s, NOW - silent_s))
    assert bool(progress.standstill(path, NOW)) == stalls


def test_a_script_that_prints_nothing_loads_as_long_as_its_gpus_work(tmp_path: Path) -> None:
    path = attempt(tmp_path, "loading", NOW - 90_000, [])
    (tmp_path / rundir.SCRIPT_RUN).write_text(json.dumps({"dialect": {"name": "verl"}}))
    sampled(tmp_path, gpu(640), gpu(300))
    assert not progress.standstill(path, NOW)
    sampled(tmp_path, *SPINS)
    assert "stage loading lasts" in progress.standstill(path, NOW)


def test_work_is_seen_across_the_halves_of_what_was_sampled(tmp_path: Path) -> None:
    path = attempt(tmp_path, "training", NOW - 9000, [])
    sampled(tmp_path, gpu(640))
    (tmp_path / "gpu-n1.jsonl").rename(tmp_path / "gpu-n1.jsonl.1")
    sampled(tmp_path, gpu(300))
    assert not progress.standstill(path, NOW)


def test_evaluating_queueing_and_compiling_are_no_hangs(tmp_path: Path) -> None:
    old = [NOW - 90_000 + one for one in range(5)]
    assert not progress.standstill(attempt(tmp_path, "training", NOW - 99_999, old, "evaluating 3/9"), NOW)
    assert not progress.standstill(attempt(tmp_path, "queued", NOW - 99_999, []), NOW)
    assert not progress.standstill(attempt(tmp_path, "training", NOW - 3000, []), NOW)
    assert "fewer than 3" in progress.standstill(attempt(tmp_path, "training", NOW - 3700, []), NOW)


def test_training_that_begins_again_after_saving_counts_from_there(tmp_path: Path) -> None:
    steps = [NOW - 2000 + one for one in range(10)]
    assert not progress.standstill(attempt(tmp_path, "training", NOW - 60, steps), NOW)
    assert not progress.standstill(str(tmp_path / "nothing"), NOW)


def test_a_machine_that_slept_or_a_clock_that_was_set_is_no_standstill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead_s = {"wall": 0.0, "passed": 0.0}
    wall, passed = time.time, time.monotonic
    monkeypatch.setattr(time, "time", lambda: wall() + ahead_s["wall"])
    monkeypatch.setattr(time, "monotonic", lambda: passed() + ahead_s["passed"])
    path = attempt(tmp_path, "training", wall() - 50, [wall() - back for back in range(40, 0, -1)])
    watch = StandstillWatch(path, lambda kind, words: None)
    watch.look({})
    ahead_s["wall"] = 7200.0  # CLOCK_MONOTONIC does not count the time asleep
    assert watch.look({}) == watch.look({}) == ""
    assert not os.path.exists(evidence.folder(path))
    ahead_s.update(wall=7900.0, passed=700.0)
    assert "no new step for 700 s" in watch.look({}), "and it has stood still since"
