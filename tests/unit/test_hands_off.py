"""Hands-off mode: which ends it goes on from, with what, how often, and where it stops."""

from __future__ import annotations

import datetime
import json
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from rltui.cli import auto
from rltui.cluster.jobs import JobSnapshot
from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import RelayError
from rltui.onnode import rundir
from rltui.runs.journal import Journal
from rltui.service import hands_off, hands_off_switch
from rltui.service.hands_off import causes_of, where_ray_decides
from rltui.service.hands_off_rules import HOLDS_S, CauseFix, Policy, Record, Situation, decide, quiet_s, read_records
from rltui.service.run_jobs import _with_job
from rltui.tui.progress import state_detail
from rltui.watch.pending import held_words, pending_words
from rltui.watch.run_facts import run_facts, summarise
from rltui.watch.snapshots import EndSnapshot, RunSummary

STALL = CauseFix(cause="run_stalled", recovery="restart", sentence="stood still")
LIMIT = CauseFix(cause="slurm_time_limit", recovery="restart", sentence="time limit")
NODE = CauseFix(cause="xid_79_fell_off_bus", recovery="elsewhere", sentence="keeps away", exclude=("n7",))
MEMORY = CauseFix(
    cause="cuda_oom_fwd_bwd", recovery="change", sentence="halved", overrides=("roles.learner.micro_batch=2",)
)
BROKEN = CauseFix(cause="env_import_broken", recovery="person", sentence="install it")
POLICY = Policy()


def ended(*causes: CauseFix, **known: object) -> Situation:
    values = {"now": 1e9, "attempt": 1, "outcome": "failed", "step": 40, "checkpoint_step": 30, **known}
    return Situation(causes=causes, **values)


def restart(cause: str = "run_stalled", **known: object) -> Record:
    values = {"time": 1e9, "attempt": 1, "decision": "restart", "why": "", "step": 10, "checkpoint_step": 0, **known}
    return Record(cause=cause, **values)


@pytest.mark.parametrize("cause", [STALL, LIMIT, NODE, MEMORY])
def test_a_fault_that_a_new_attempt_mends_gets_one(cause: CauseFix) -> None:
    record = decide(POLICY, (), ended(cause))
    assert (record.decision, record.cause, record.next_attempt) == ("restart", cause.cause, 2)
    assert (record.overrides, record.exclude) == (cause.overrides, cause.exclude)
    assert record.hold_s == 0


@pytest.mark.parametrize(
    ("situation", "words"),
    [
        (ended(outcome="finished"), "all steps are done"),
        (ended(outcome="cancelled", reason="cancelled by the user"), "cancelled by the user"),
        (ended(reason="exit 1"), "no known cause"),
        (ended(BROKEN), "env_import_broken needs a person: install it"),
        (ended(structs.replace(BROKEN, happened="No module x.")), "No module x. It needs a person: install it"),
        (ended(STALL, BROKEN), "needs a person"),
        (ended(STALL, can_resume=False), "cannot go on"),
        (ended(structs.replace(MEMORY, is_proven=False), is_proven=False), "no estimate"),
        (ended(NODE, excluded=1, known_nodes=10), "already: 1, of 1 that may"),
        (ended(NODE, known_nodes=100, spare_nodes=0), "too few nodes"),
    ],
)
def test_it_stops_where_it_is_in_doubt(situation: Situation, words: str) -> None:
    record = decide(POLICY, (), situation)
    assert record.decision == "stop"
    assert words in record.why
    assert not record.next_attempt


def test_the_same_cause_at_the_same_step_twice_is_the_end() -> None:
    assert decide(POLICY, (restart(step=40),), ended(STALL)).decision == "stop"
    assert decide(POLICY, (restart(step=39),), ended(STALL)).decision == "restart"
    assert decide(POLICY, (restart(cause="nccl_timeout", step=40),), ended(STALL)).decision == "restart"


def test_a_damaged_checkpoint_is_set_aside_and_each_only_once() -> None:
    broken = CauseFix(cause="ckpt_broken", recovery="restart", sentence="set aside", set_aside="step-000040")
    record = decide(POLICY, (), ended(broken))
    assert (record.decision, record.set_aside) == ("restart", "step-000040")
    assert decide(POLICY, (record,), ended(broken)).decision == "stop"
    assert decide(POLICY, (record,), ended(broken, step=60, checkpoint_step=60)).decision == "restart"


def test_nodes_that_others_found_bad_are_avoided_as_far_as_allowed() -> None:
    known = {"known_nodes": 30, "remembered": ("n1", "n2", "n7", "n9")}
    assert decide(POLICY, (), ended(STALL, **known)).exclude == ("n1", "n2", "n7")
    assert decide(POLICY, (), ended(NODE, **known)).exclude == ("n7", "n1", "n2")
    assert decide(POLICY, (), ended(STALL, **known, spare_nodes=1)).exclude == ("n1",)
    assert decide(POLICY, (), ended(STALL, **known, excluded=3)).exclude == ()


def test_on_a_standing_ray_a_bad_node_is_for_a_person_as_nothing_keeps_a_run_away_from_it() -> None:
    assert decide(POLICY, (), ended(where_ray_decides(STALL))).decision == "restart"
    record = decide(POLICY, (), ended(where_ray_decides(NODE)))
    assert (record.decision, record.exclude) == ("stop", ())
    assert "take n7 out of it" in record.why


def test_memory_is_changed_once_only() -> None:
    before = restart("cuda_oom_fwd_bwd", overrides=MEMORY.overrides)
    assert "again, after roles.learner.micro_batch=2" in decide(POLICY, (before,), ended(MEMORY)).why


@pytest.mark.parametrize("cause", ["slurm_preempted", "slurm_node_fail"])
def test_preemptions_and_lost_nodes_say_nothing_of_the_run(cause: str) -> None:
    past = tuple(restart(cause, step=40, checkpoint_step=30, attempt=n) for n in range(1, 10))
    passing = CauseFix(cause=cause, recovery="restart", sentence="not its doing")
    assert decide(POLICY, past, ended(passing)).decision == "restart"


def test_time_limits_end_it_where_none_of_them_leaves_time_for_a_checkpoint() -> None:
    past = [restart("slurm_time_limit", step=40, checkpoint_step=n, attempt=n) for n in range(1, 10)]
    assert decide(POLICY, past, ended(LIMIT, checkpoint_step=10)).decision == "restart"
    past = [restart("slurm_time_limit", step=40, checkpoint_step=30, attempt=n) for n in range(1, 4)]
    record = decide(POLICY, past, ended(LIMIT, checkpoint_step=30))
    assert record.decision == "stop"
    assert "a longer slurm.time" in record.why


def test_attempts_without_a_new_checkpoint_get_rarer_and_then_end() -> None:
    past: tuple[Record, ...] = ()
    holds = []
    for step in range(40, 60):
        record = decide(POLICY, past, ended(STALL, step=step))
        if record.decision == "stop":
            break
        holds.append(record.hold_s)
        past += (record,)
    assert holds == list(HOLDS_S[: POLICY.max_without_progress])
    assert "no new checkpoint" in record.why
    assert decide(POLICY, past, ended(STALL, step=60, checkpoint_step=50)).hold_s == 0


def test_restarts_and_gpu_hours_are_bounded() -> None:
    past = tuple(restart(step=n, checkpoint_step=n) for n in range(POLICY.max_restarts))
    assert "max_restarts" in decide(POLICY, past, ended(STALL)).why
    assert "max_gpu_hours" in decide(Policy(max_gpu_hours=10.0), (), ended(STALL, gpu_hours=10.5)).why


def test_quiet_hours_are_waited_for() -> None:
    at = datetime.datetime(2026, 11, 23, 23, 30).timestamp()
    assert quiet_s("22:00-07:00", at) == pytest.approx(7.5 * 3600)
    assert quiet_s("22:00-07:00", at - 2 * 3600) == 0
    assert quiet_s("", at) == 0
    assert decide(Policy(quiet_hours="22:00-07:00"), (), ended(STALL, now=at)).hold_s == pytest.approx(7.5 * 3600)


def test_a_back_off_that_leads_into_quiet_hours_waits_for_their_end() -> None:
    at = datetime.datetime(2026, 11, 23, 21, 57).timestamp()
    past = tuple(restart(step=n, attempt=n, checkpoint_step=30) for n in (1, 2))
    record = decide(Policy(quiet_hours="22:00-07:00"), past, ended(STALL, attempt=3, now=at))
    assert record.until == "07:00"
    assert "quiet hours 22:00-07:00 and 2 attempts" in record.held
    early = decide(Policy(quiet_hours="22:00-07:00"), past, ended(STALL, attempt=3, now=at - 3600))
    assert (early.until, "quiet" in early.held) == ("21:02", False)


@pytest.mark.parametrize(
    ("zone", "now", "waits_h"),
    [
        ("America/St_Johns", (2026, 3, 7, 23, 0), 7.0),  # clocks go from 2 to 3 in that night
        ("America/St_Johns", (2026, 10, 31, 23, 0), 9.0),  # and from 2 to 1 in that
        ("Pacific/Auckland", (2026, 9, 26, 23, 0), 7.0),
        ("Pacific/Auckland", (2026, 7, 1, 6, 45), 0.25),
        ("Pacific/Auckland", (2026, 7, 1, 7, 0), 0.0),
    ],
)
def test_quiet_hours_end_by_the_clock_on_the_wall(
    monkeypatch: pytest.MonkeyPatch, zone: str, now: tuple[int, ...], waits_h: float
) -> None:
    try:
        with monkeypatch.context() as there:
            there.setenv("TZ", zone)
            time.tzset()
            assert quiet_s("22:00-07:00", datetime.datetime(*now).timestamp()) == waits_h * 3600
            assert quiet_s("22:00-24:00", datetime.datetime(2026, 7, 1, 23, 0).timestamp()) == 3600
    finally:
        time.tzset()


def test_a_wait_is_told_when_it_begins_where_no_scheduler_does_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = datetime.datetime(2026, 11, 23, 23, 30).timestamp()
    attempt = tmp_path / "grpo-1a2b" / "attempts" / "01"
    attempt.mkdir(parents=True)
    told = {"on": True, "policy": {"quiet_hours": "22:00-07:00"}}
    attempt.parents[1].joinpath(rundir.HANDS_OFF).write_text(json.dumps(told))
    run = SimpleNamespace(run_id="grpo-1a2b", last_attempt=1, attempt=1)
    monkeypatch.setattr(hands_off, "_once_ended", lambda *_: run)
    monkeypatch.setattr(hands_off, "situation_of", lambda *_: ended(STALL, now=at))
    known: list[tuple[str, ...]] = []
    monkeypatch.setattr(hands_off, "_submit", lambda *_: known.append(tuple(one.what for one in read())) or True)

    def read() -> tuple[Record, ...]:
        return read_records(attempt.parents[1])

    place = SimpleNamespace(
        name="local", journal=Journal(tmp_path), cluster=SimpleNamespace(profile=SimpleNamespace(scheduler="local"))
    )
    assert hands_off.take(place, attempt) is not None  # type: ignore[arg-type]  # what it is made of is the fake's matter
    assert known == [("attempt 2 waits until 07:00",)]
    assert [one.what for one in read()] == ["attempt 2 waits until 07:00", "attempt 2, not before 07:00"]
    assert "waits until 07:00" in (attempt / rundir.EVENTS).read_text().splitlines()[0]
    (journalled,) = place.journal.entries()
    assert journalled["reason"] == "attempt 2, not before 07:00: run_stalled: stood still"
    place.cluster.profile.scheduler = "slurm"
    attempt.parents[1].joinpath(rundir.DECISIONS).unlink()
    hands_off.take(place, attempt)  # type: ignore[arg-type]
    assert [one.decision for one in read()] == ["restart"], "Slurm does the waiting"


@pytest.mark.parametrize("is_on", [True, False])
def test_what_it_lets_wait_is_said_with_until_when_and_why(is_on: bool) -> None:
    at = datetime.datetime(2026, 11, 23, 23, 30).timestamp()
    past = tuple(restart(step=n, attempt=n, checkpoint_step=30) for n in (1, 2))
    record = decide(Policy(quiet_hours="22:00-07:00"), past, ended(STALL, attempt=3, now=at))
    why = "quiet hours 22:00-07:00 and 2 attempts in a row brought no new checkpoint"
    assert record.held == f"until 07:05: {why}"
    files = {
        rundir.RUN: json.dumps({"name": "grpo"}),
        rundir.HANDS_OFF: json.dumps({"on": is_on}),
        rundir.DECISIONS: "".join(msgspec.json.encode(one).decode() + "\n" for one in (*past, record)) + '{"cut',
        "attempts/03/job.json": "{}",
        "attempts/03/stage.json": json.dumps({"stage": "training"}),
        "attempts/03/end.json": json.dumps({"outcome": "failed", "reason": "stood still", "at": at}),
    }
    waits = f"attempt 4 waits until 07:05: {why}" if is_on else ""
    run = row(files)
    assert (held_words(run, at), held_words(run, at + 86400)) == (waits, "")
    for words in (state_detail(run, at), state_detail(run)):
        assert bool(waits and waits in words) == is_on
    queued = _with_job(
        row({**files, "attempts/04/job.json": "{}"}), JobSnapshot(job_id="9", state="pending", reason="BeginTime")
    )
    assert queued.job is not None
    said = pending_words(queued.job, at)
    assert (said == f"Hands-off mode holds it until 07:05: {why}") == is_on
    other = structs.replace(queued.job, reason="Priority")
    assert "Hands-off" not in pending_words(other, at)


def row(files: dict[str, str]) -> RunSummary:
    facts = run_facts("grpo-1a2b", files)
    assert facts is not None
    return summarise(facts, "/runs/grpo-1a2b", None)


def test_it_stays_on_where_somebody_ended_the_attempt_to_start_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = tmp_path / "grpo-1a2b" / "attempts" / "02"
    attempt.mkdir(parents=True)
    switch = attempt.parents[1] / rundir.HANDS_OFF
    run = SimpleNamespace(run_id="grpo-1a2b", last_attempt=2, attempt=2, path=str(attempt.parents[1]))
    monkeypatch.setattr(hands_off, "_once_ended", lambda *_: run)
    monkeypatch.setattr(
        hands_off, "situation_of", lambda *_: ended(attempt=2, outcome="cancelled", reason="by the user")
    )
    monkeypatch.setattr(hands_off_switch, "told_of", lambda *_: json.loads(switch.read_text()))
    kept: dict[str, bytes] = {}
    client = SimpleNamespace(put=kept.__setitem__)
    place = SimpleNamespace(name="local", journal=Journal(tmp_path), cluster=SimpleNamespace(client=client))
    for replaced, is_on in ((1, False), (2, True)):
        switch.write_text(json.dumps({"on": True}))
        hands_off_switch.keep_through(place, SimpleNamespace(attempt=replaced, path=run.path))  # type: ignore[arg-type]
        switch.write_bytes(kept[str(switch)])
        hands_off.take(place, attempt)  # type: ignore[arg-type]
        assert json.loads(switch.read_text())["on"] == is_on


def test_nothing_waits_on_once_it_is_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, told = SimpleNamespace(path=str(tmp_path)), tmp_path / rundir.HANDS_OFF
    told.write_text('{"on": true}')
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        told.write_text(json.dumps({"on": len(slept) < 3}))

    monkeypatch.setattr(hands_off.time, "sleep", sleep)
    assert not hands_off._waited(run, 36000.0)  # type: ignore[arg-type]
    assert len(slept) == 3
    assert max(slept) < 60.0, "--off is soon seen"
    told.write_text('{"on": true}')
    assert hands_off._waited(run, 0.0)  # type: ignore[arg-type]


def test_what_the_scheduler_holds_back_is_dropped_when_it_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time() + 36000.0  # by the cluster's clock
    held = restart(time=now - 60.0, hold_s=300.0, next_attempt=2)
    run = SimpleNamespace(run_id="r-1a2b", path="/r", state="queued", attempt=2, last_attempt=2)
    dropped: list[list[int]] = []
    monkeypatch.setattr(hands_off_switch, "told_of", lambda *_: {"on": True})
    monkeypatch.setattr("rltui.service.actions.drop_waiting", lambda _, run, numbers, *words: dropped.append(numbers))
    nothing = SimpleNamespace(write=lambda *_, **__: None, put=lambda *_: None, hello=lambda: SimpleNamespace(time=now))
    place = SimpleNamespace(
        name="lab", require_own=lambda _: None, journal=nothing, cluster=SimpleNamespace(client=nothing)
    )

    def off(*records: Record, **known: object) -> str:
        monkeypatch.setattr(hands_off_switch, "records_of", lambda *_: list(records))
        return hands_off_switch.switch_off(place, SimpleNamespace(**{**vars(run), **known}))  # type: ignore[arg-type]

    assert off(held).endswith(f"Attempt 2, which was to wait until {held.until}, is cancelled.")
    for words in (off(structs.replace(held, hold_s=30.0)), off(held, state="running"), off(held, attempt=3), off()):
        assert words.endswith("nothing is started again.")
    assert dropped == [[2], [], [], [], []]


def test_it_can_be_switched_off_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    switch = tmp_path / rundir.HANDS_OFF
    switch.write_text('{"on": true}')
    monkeypatch.setattr(hands_off_switch, "records_of", lambda *_: [])
    client = RelayClient(LocalTransport())

    def refuse(*_: object) -> None:
        raise RelayError("full", "No space left on device")

    monkeypatch.setattr(client, "put", refuse)
    place = SimpleNamespace(
        name="lab", require_own=lambda _: None, journal=Journal(tmp_path), cluster=SimpleNamespace(client=client)
    )
    run = SimpleNamespace(run_id="r", path=str(tmp_path), state="running", attempt=1, last_attempt=1)
    assert "left alone" in hands_off_switch.switch_off(place, run)  # type: ignore[arg-type]
    assert hands_off_switch.told_of(place, run) == {}  # type: ignore[arg-type]
    client.close()


@pytest.mark.parametrize(
    ("ended_s", "words"), [(5.0, "it is being decided"), (500.0, "nothing was decided; rltui fix r-1a2b is for you")]
)
def test_the_status_says_whether_a_decision_may_still_come(ended_s: float, words: str) -> None:
    end = EndSnapshot(outcome="failed", at=1000.0 - ended_s)
    run = SimpleNamespace(run_id="r-1a2b", is_live=False, state="failed", attempt=2, end=end)
    lines = list(auto._lines(run, {"on": True}, (restart(attempt=1),), now=1000.0))  # type: ignore[arg-type]
    assert lines[-1] == f"  after attempt 2: {words}"


@pytest.mark.parametrize("is_live", [True, False])
def test_the_switch_of_a_run_that_has_ended_says_that_it_starts_nothing(is_live: bool) -> None:
    state = "running" if is_live else "failed"
    run = SimpleNamespace(
        run_id="r", identity=None, hands_off="", is_adopted=False, share=None, state=state, is_live=is_live
    )
    preview = hands_off_switch.preview_switch(SimpleNamespace(require_own=lambda _: None), run)  # type: ignore[arg-type]
    assert preview.consequences[0].startswith("It has ended") == (not is_live)


CAUSES = st.sampled_from([STALL, LIMIT, NODE, MEMORY, BROKEN])


@given(st.lists(st.tuples(CAUSES, st.integers(0, 5), st.integers(0, 3)), max_size=60))
def test_whatever_happens_it_ends(faults: list[tuple[CauseFix, int, int]]) -> None:
    """No sequence of faults gets more attempts than allowed, nor two for the same cause at the same step."""
    past: list[Record] = []
    step = saved = 0
    for cause, steps, new in faults:
        step, saved = step + steps, saved + min(steps, new)
        record = decide(POLICY, past, ended(cause, step=step, checkpoint_step=saved, known_nodes=100))
        past.append(record)
        if record.decision == "stop":
            break
    restarts = [one for one in past if one.decision == "restart"]
    assert len(restarts) <= POLICY.max_restarts
    assert all(one.cause != BROKEN.cause for one in restarts)
    once = [(one.cause, one.step) for one in restarts if one.cause != LIMIT.cause]
    assert len(once) == len(set(once))
    assert len([one for one in restarts if one.overrides]) <= 1


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ({"outcome": "lost"}, "lost"),
        ({"outcome": "failed", "exit_code": 137}, "killed"),
        ({"outcome": "failed", "exit_code": 1}, "program_failed"),
    ],
)
def test_an_exception_of_no_kind_is_not_why_processes_vanish(
    monkeypatch: pytest.MonkeyPatch, end: dict[str, object], cause: str
) -> None:
    printed = CauseFix(cause="program_failed", recovery="person", sentence="a strange thing")
    monkeypatch.setattr("rltui.service.one_fix.compose_causes", lambda *_: (printed,))
    causes, _ = causes_of(None, None, end)  # type: ignore[arg-type]  # what they are is the fake's matter
    assert [one.cause for one in causes] == [cause]
