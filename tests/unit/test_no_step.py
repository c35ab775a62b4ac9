"""A live run whose steps stop coming: a word after a minute, and no rate that is older than that."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from rltui.diagnose.recent import RunPicture, Step
from rltui.diagnose.stuck import stood_still
from rltui.watch.node_samples import HostSnapshot, ProcessSample
from rltui.watch.runs import last_metrics, with_metrics
from rltui.watch.silence import aged, halt_words, halted, no_step_words
from rltui.watch.snapshots import RunSnapshot, RunSummary, StageSnapshot

NOW = 1_800_000_000.0
ROW = RunSummary(
    run_id="r", name="r", algorithm="grpo", cluster="local", state="running", attempt=1, created_at=0.0, nodes=1,
    gpus_per_node=1, gpu="cpu", stage=StageSnapshot(stage="training", since=NOW - 9000),
)  # fmt: skip


def row(waited_s: float, step_s: float = 0.4, run: RunSummary = ROW, written_at: float = 0.0) -> RunSummary:
    lines = [
        {"step": number, "time": NOW - waited_s - step_s * (10 - number), "learner_tokens_per_second_step": 29_200.0}
        for number in range(1, 11)
    ]
    metrics = last_metrics("\n".join(map(json.dumps, lines)).encode() + b"\n", written_at)
    return aged(with_metrics(run, metrics), metrics, NOW)


@pytest.mark.parametrize(("waited_s", "step_s", "words"), [
    (50, 0.4, ""),
    (130, 0.4, "no step for 2m10, usually 0.4 s"),
    (130, 4.2e-5, "no step for 2m10"),
    (130, 40.0, ""),
    (4000, 40.0, "no step for 1h06, usually 40 s"),
])  # fmt: skip
def test_it_is_relative_to_the_run(waited_s: float, step_s: float, words: str) -> None:
    found = row(waited_s, step_s)
    assert no_step_words(found) == words
    assert found.tokens_per_second == (None if words else 29_200.0)
    assert found.tokens_per_second_history, "what was stays a curve"


@pytest.mark.parametrize(("waited_s", "words"), [(190.5, ""), (250.5, "no step for 4m10")])
def test_a_program_that_tells_many_steps_at_once_is_waited_for_as_long_as_before(waited_s: float, words: str) -> None:
    lines = [
        {"step": 20 * block + number, "time": NOW - waited_s - 200.0 * (2 - block) + 1e-5 * number, "reward": 0.1}
        for block in range(3)
        for number in range(20)
    ]
    metrics = last_metrics("\n".join(map(json.dumps, lines)).encode() + b"\n")
    assert no_step_words(aged(with_metrics(ROW, metrics), metrics, NOW)) == words
    steps = tuple(Step(line["time"], {}) for line in lines)
    assert stood_still(NOW, RunPicture(now=NOW, stage=ROW.stage, steps=steps)) == bool(words)


@pytest.mark.parametrize("stage", [
    StageSnapshot(stage="saving", since=NOW - 900),
    StageSnapshot(stage="training", since=NOW - 9000, detail="evaluating 3 of 9"),
    StageSnapshot(stage="training", since=NOW - 30),
])  # fmt: skip
def test_saving_evaluating_and_beginning_make_no_steps(stage: StageSnapshot) -> None:
    assert not row(600, run=structs.replace(ROW, stage=stage)).no_step_s


def test_a_node_whose_clock_is_behind_is_not_silent() -> None:
    assert row(600).no_step_s
    assert not row(600, written_at=NOW - 2).no_step_s


def test_processes_that_stand_still_are_named_of_a_live_run_only() -> None:
    stopped = ProcessSample(pid=7, title="ray::Learner", state="stopped", state_s=12.0)
    hosts = (HostSnapshot(host="n1", processes=(ProcessSample(pid=6, title="ray::Engine"), stopped)),)
    assert halted(RunSnapshot(summary=ROW, hosts=hosts)) == ["ray::Learner (pid 7) on n1: stopped for 12 s"]
    assert halted(RunSnapshot(summary=structs.replace(ROW, state="failed"), hosts=hosts)) == []


def test_a_node_that_speaks_no_more_is_not_quoted() -> None:
    stopped = ProcessSample(pid=7, title="ray::Learner", state="stopped", state_s=12.0)
    old = HostSnapshot(host="n1", taken_at=NOW - 90, processes=(stopped,))
    hosts = (old, HostSnapshot(host="n2", taken_at=NOW))
    assert halted(RunSnapshot(summary=ROW, hosts=hosts, taken_at=NOW)) == []


def process(at: float, words: str, pid: int = 7, kind: str = "process") -> dict[str, object]:
    return {"kind": kind, "time": NOW + at, "text": f"ray::Learner x (pid {pid}): {words} on n1", "host": "n1"}


PLACED = {"kind": "roles", "time": NOW - 900, "roles": [{"role": "learner 1", "pid": 7, "host": "n1.site"}]}


def awaits(at: float, text: str) -> dict[str, object]:
    return {"kind": "awaited", "time": NOW + at, "text": text}


@pytest.mark.parametrize(("events", "words"), [
    ([process(-20, "stopped")], "Learner stopped (pid 7 on n1)"),
    ([PLACED, process(-20, "stopped")], "learner 1 stopped (pid 7 on n1)"),
    ([awaits(-20, "rank 2 (pid 9 on n1) is in judge (a.py:4), while rank 0 (pid 7 on n1) is in all_reduce")],
     "waits for rank 2 (pid 9 on n1)"),
    ([awaits(-20, "rank 2 (pid 9 on n1) has not come; rank 0 (pid 7 on n1) waits for it"),
      awaits(-20, "rank 3 (pid 8 on n1) is dead")], "waits for rank 2 (pid 9 on n1) and 1 more"),
    ([awaits(-20, "rank 0 (pid 7 on n1), rank 1 (pid 8 on n1): all ranks are in all_reduce")], ""),
    ([awaits(-40, "rank 2 (pid 9 on n1) is dead")], ""),
    ([process(-20, "traced"), process(-10, "stopped", pid=8)], "Learner stopped (pid 8 on n1) and 1 more"),
    ([process(-20, "stopped"), process(-10, "goes on again")], ""),
    ([process(-20, "disk wait")], ""),
    ([process(-2, "stopped")], ""),
    ([process(-40, "stopped")], ""),
    ([process(-20, "stopped"), process(-10, "was killed", kind="restart")], ""),
], ids=[
    "stopped", "role", "awaited", "two awaited", "none awaited", "awaited before a step",
    "two", "goes on", "reads a disk", "for a moment", "a step since", "restarted",
])  # fmt: skip
def test_who_is_stopped_is_said_at_once(events: list[dict[str, object]], words: str) -> None:
    assert halt_words(events, last=NOW - 30, now=NOW) == words


def test_ended_runs_and_runs_without_metrics_are_left() -> None:
    assert not row(600, run=structs.replace(ROW, state="failed")).no_step_s
    empty = last_metrics(b"")
    assert aged(ROW, empty, NOW) == ROW
