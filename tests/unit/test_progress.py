"""Whether an attempt stands still, by its own files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rltui.onnode import progress, rundir

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
