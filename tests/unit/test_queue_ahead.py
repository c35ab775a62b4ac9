"""When a run's next job is queued while one trains."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from rltui.cli.launch import add_arguments, run
from rltui.errors import UsageError
from rltui.onnode import chain, queue_ahead, rundir
from rltui.watch.run_facts import run_facts


def attempt_of(folder: Path, *, step: int = 10, steps: int | None = 100, step_s: float = 10.0, lines: int = 10) -> str:
    """An attempt that began to train at 1,000 s and takes ``step_s`` for each step."""
    attempt = folder / "attempts/01"
    attempt.mkdir(parents=True)
    history = [{"stage": "loading", "at": 900.0}, {"stage": "training", "at": 1000.0}]
    stage = {"stage": "training", "step": step, "steps": steps, "history": history}
    (attempt / rundir.STAGE).write_text(json.dumps(stage))
    told = [json.dumps({"step": number, "time": 1000.0 + number * step_s}) for number in range(lines)]
    (attempt / rundir.METRICS).write_text("\n".join(told) + "\n")
    return str(attempt)


@pytest.mark.parametrize(
    ("known", "ends_at", "is_due"),
    [
        ({}, 1000.0 + 1200.0, False),  # 90 steps of 10 s, and a tenth more, end at 2,090 s
        ({}, 1000.0 + 1000.0, True),
        ({"steps": None}, 1000.0 + 300.0, False),  # half of the job is over at 1,150 s
        ({"steps": None}, 1000.0 + 190.0, True),
        ({"lines": 3}, 1000.0 + 1000.0, False),
        ({"step": 100}, 1000.0 + 101.0, False),  # all steps are done
    ],
)
def test_a_next_job_is_due_when_this_one_will_not_be_the_last(
    tmp_path: Path, known: dict[str, int], ends_at: float, is_due: bool
) -> None:
    assert queue_ahead.is_due(attempt_of(tmp_path, **known), ends_at, now=1100.0) is is_due


def test_a_run_that_has_not_trained_yet_needs_none(tmp_path: Path) -> None:
    attempt = tmp_path / "attempts/01"
    attempt.mkdir(parents=True)
    assert not queue_ahead.is_due(str(attempt), 1.0, now=1e9)


def test_only_a_run_that_wants_it_and_has_no_next_attempt_gets_one(tmp_path: Path) -> None:
    attempt = attempt_of(tmp_path)
    assert not queue_ahead.is_wanted(attempt)
    for on, ahead in ((True, True), (True, False), (False, True)):
        told = {"on": on, "policy": {"queue_ahead": ahead}}
        (tmp_path / rundir.HANDS_OFF).write_text(json.dumps(told))
        assert queue_ahead.is_wanted(attempt) is (on and ahead)
    assert not queue_ahead.has_next(attempt)
    (tmp_path / "attempts/02").mkdir()
    assert queue_ahead.has_next(attempt)


def test_a_start_that_slurm_made_again_has_what_waits_behind_the_first_one(tmp_path: Path) -> None:
    attempt_of(tmp_path)
    waits = {"uuid": "u", "after_job": "7"}
    for name, job in (("02", waits), ("03", {**waits, "requeue_of": 1})):
        (tmp_path / "attempts" / name).mkdir()
        (tmp_path / "attempts" / name / rundir.JOB).write_text(json.dumps(job))
    assert queue_ahead.waiting(str(tmp_path)) == [2]
    assert queue_ahead.has_next(str(tmp_path / "attempts/03"))
    rundir.write_end(str(tmp_path / "attempts/02"), "cancelled", None, "by the user")
    assert queue_ahead.waiting(str(tmp_path)) == []
    assert not queue_ahead.has_next(str(tmp_path / "attempts/03"))


def test_a_waiting_job_ends_at_once_where_the_run_goes_on_by_itself_no_more(tmp_path: Path) -> None:
    attempt_of(tmp_path)
    second = tmp_path / "attempts/02"
    second.mkdir()
    (second / rundir.JOB).write_text(json.dumps({"uuid": "u", "after_job": "7"}))
    told = {"on": True, "policy": {"queue_ahead": True}}
    (tmp_path / rundir.HANDS_OFF).write_text(json.dumps(told))
    assert chain.verdict(str(second)) is None
    (tmp_path / rundir.HANDS_OFF).write_text(json.dumps({**told, "on": False, "stopped": "no known cause"}))
    verdict = chain.verdict(str(second))
    assert verdict is not None
    assert (verdict.outcome, "no known cause" in verdict.reason) == ("cancelled", True)


def test_a_run_is_where_its_last_needed_attempt_ended() -> None:
    end = {"outcome": "finished", "at": 50.0}
    texts = {
        rundir.RUN: '{"name": "grpo"}',
        "attempts/01/end.json": json.dumps(end),
        "attempts/02/end.json": json.dumps({**end, "at": 60.0, "unneeded": True}),
    }
    facts = run_facts("grpo-1", texts)
    assert facts is not None
    assert facts.newest.number == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--until-done", "--chain", "3"], "Give one"),
        (["--max-jobs", "3"], "--max-jobs is"),
        (["--until-done", "--max-jobs", "0"], "--max-jobs is"),
        (["--until-done"], "has no Slurm"),
    ],
)
def test_words_that_make_no_sense_are_refused_before_anything_is_made(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("RUN_ROOT", "STATE_DIR", "CONFIG_DIR", "CACHE_DIR"):
        monkeypatch.setenv(f"RLTUI_{name}", str(tmp_path / name))
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(UsageError) as refused:
        run(parser.parse_args(["local/grpo-tiny", *words, "--cluster", "local"]))
    assert said in f"{refused.value.message} {refused.value.hint}"
    assert not (tmp_path / "RUN_ROOT").exists() or not list((tmp_path / "RUN_ROOT").glob("grpo*"))
