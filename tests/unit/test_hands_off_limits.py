"""Hands-off mode at its limits: a disk without room for its notes, and guard rails that would hold nothing."""

from __future__ import annotations

import errno
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from msgspec import structs

from rltui.cli import auto
from rltui.errors import RltuiError, UsageError
from rltui.onnode import rundir
from rltui.runs.journal import Journal
from rltui.service import hands_off, hands_off_switch
from rltui.service.hands_off import gpu_hours_of
from rltui.service.hands_off_rules import CauseFix, Policy, Record, Situation, decide, policy_of, quiet_s

STALL = (CauseFix(cause="run_stalled", recovery="restart", sentence="stood still"),)


@pytest.mark.parametrize("decision", ["stop", "restart"])
def test_people_are_told_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decision: Literal["stop", "restart"]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    told: list[str] = []
    monkeypatch.setattr(rundir, "append_line", full)
    monkeypatch.setattr(hands_off, "tell_of", lambda _attempt, kind, words: told.append(f"{kind}: {words}"))
    record = Record(time=1e9, attempt=1, decision=decision, cause="disk_full", why="the disk is full", next_attempt=2)
    hands_off._note(tmp_path, str(tmp_path), record, "failed")
    hands_off._say_why_not(tmp_path, "no journal")
    first = "needs you: " if decision == "stop" else "fixed: attempt 2: "
    assert told == [f"{first}the disk is full", "needs you: not started again: no journal"]


@pytest.mark.parametrize("word", ["max_gpu_hours=.nan", "max_gpu_hours=.inf", "max_excluded=-1", "max_restarts=-1"])
def test_a_guard_rail_that_would_hold_nothing_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="Expected"):
        auto.policy_of_words([word])


@pytest.mark.parametrize("hours", ["25:00-07:00", "22:00-07:75"])
def test_quiet_hours_are_times_of_day(hours: str) -> None:
    with pytest.raises(ValueError, match="no time of day"):
        quiet_s(hours, 0.0)


@pytest.mark.parametrize("hours", ["00:00-24:00", "07:00-07:00"])
def test_quiet_hours_that_hold_nothing_are_refused(hours: str) -> None:
    with pytest.raises(RltuiError, match="begin and end at one time"):
        hands_off_switch.require_sound(None, Policy(quiet_hours=hours))  # type: ignore[arg-type]


def test_with_a_stored_guard_rail_that_is_none_nothing_goes_on_by_itself() -> None:
    stored: dict[str, Any] = {"max_restarts": 5, "max_excluded": 1.5, "of_a_newer_version": True}
    assert policy_of({"policy": stored}) == (Policy(max_restarts=5), ("max_excluded=1.5", "of_a_newer_version=True"))
    assert policy_of({}) == policy_of({"policy": None}) == (Policy(), ())
    preempted = Situation(
        now=0.0, attempt=1, outcome="lost", causes=(CauseFix(cause="lost", recovery="restart", sentence=""),)
    )
    assert decide(Policy(), (), preempted).decision == "restart"
    stopped = decide(Policy(), (), preempted, ("max_gpu_hours=nan",))
    assert (stopped.decision, "max_gpu_hours=nan" in stopped.why) == ("stop", True)


@pytest.mark.parametrize("text", ['{"on": tr', "[1]", "", "null"])
def test_a_damaged_switch_is_off_as_it_is_for_the_node(text: str) -> None:
    client = SimpleNamespace(collect=lambda *_: [SimpleNamespace(text=text)])
    place = SimpleNamespace(cluster=SimpleNamespace(client=client))
    assert hands_off_switch.told_of(place, SimpleNamespace(path="/runs/a")) == {}  # type: ignore[arg-type]


def test_gpu_hours_are_those_of_the_cards_that_each_attempt_had(tmp_path: Path) -> None:
    alike, unlike = {"nodes": 4, "gpus_per_node": 8}, {"nodes": 2, "gpus_per_node": 6, "kinds": [[1, 8], [1, 4]]}
    for number, job in enumerate(({"held": alike}, {"held": unlike}, {}), start=1):
        attempt = tmp_path / f"attempts/{number:02d}"
        attempt.mkdir(parents=True)
        history = [{"stage": "submitted", "at": 0.0}, {"stage": "preflight", "at": 1000.0}]
        files = {"stage.json": {"history": history}, "end.json": {"at": 4600.0}, "job.json": job}
        for name, told in files.items():
            (attempt / name).write_text(json.dumps(told))
    assert gpu_hours_of(tmp_path, 2) == 32 + 12 + 2


def test_it_is_off_before_anybody_is_told_that_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = tmp_path / "grpo-1a2b" / "attempts" / "01"
    attempt.mkdir(parents=True)
    switch, seen = attempt.parents[1] / rundir.HANDS_OFF, []
    switch.write_text(json.dumps({"on": True}))
    now = Situation(now=1e9, attempt=1, outcome="failed", reason="a bug")
    monkeypatch.setattr(
        hands_off, "_once_ended", lambda *_: SimpleNamespace(run_id="grpo-1a2b", last_attempt=1, attempt=1)
    )
    monkeypatch.setattr(hands_off, "situation_of", lambda *_: now)
    monkeypatch.setattr(hands_off, "tell_of", lambda *_, **__: seen.append(json.loads(switch.read_text())["on"]))
    place: Any = SimpleNamespace(name="local", journal=Journal(tmp_path))
    assert getattr(hands_off.take(place, attempt), "decision", "") == "stop"
    assert seen == [False]


def test_until_when_it_waits_is_the_nodes_time_of_day_wherever_it_is_read() -> None:
    record = decide(
        Policy(quiet_hours="00:00-23:59"), (), Situation(now=1e9, attempt=1, outcome="failed", causes=STALL)
    )
    there = structs.replace(record, until_clock="07:00")
    assert (record.until, there.until, there.what) == ("23:59", "07:00", "attempt 2, not before 07:00")
    of_old = structs.replace(there, until_clock="")
    assert of_old.until == time.strftime("%H:%M", time.localtime(of_old.time + of_old.hold_s))
