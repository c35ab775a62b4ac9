"""The list of runs: states folded from files and processes, and a reader on real directories."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from watch_support import append, make_run, supervisor, write_json

from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import ProcessIdentity
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.onnode import rundir
from rltui.onnode.attempt_runner import AttemptRunner, Verdict
from rltui.runs.directory import held
from rltui.service.run_columns import shape_of
from rltui.watch.run_facts import fold_state, run_facts
from rltui.watch.run_watcher import RunWatcher
from rltui.watch.runs import RunsReader
from rltui.watch.small_files import SmallFiles
from rltui.watch.snapshots import EndSnapshot, RunSummary, StageSnapshot


def only(root: Path, client: RelayClient) -> RunSummary:
    [run] = RunsReader(client, str(root)).read().runs
    return run


@pytest.mark.parametrize(
    ("stage", "outcome", "alive", "state"),
    [
        (None, None, None, "unknown"),
        (None, None, True, "queued"),
        (None, None, False, "lost"),
        ("submitted", None, None, "queued"),
        ("queued", None, True, "queued"),
        ("preflight", None, True, "starting"),
        ("ray-up", None, True, "starting"),
        ("placing", None, True, "starting"),
        ("loading", None, None, "starting"),
        ("training", None, True, "running"),
        ("saving", None, True, "running"),
        ("training", None, None, "running"),
        ("training", None, False, "lost"),
        ("queued", None, False, "lost"),
        ("ended", None, True, "stopping"),
        ("ended", None, False, "lost"),
        ("dancing", None, True, "unknown"),
        ("ended", "finished", False, "finished"),
        ("training", "failed", True, "failed"),
        (None, "cancelled", None, "cancelled"),
        ("training", "lost", False, "lost"),
        ("ended", "exploded", False, "unknown"),
    ],
)
def test_fold_state(stage: str | None, outcome: str | None, alive: bool | None, state: str) -> None:
    stage_snapshot = StageSnapshot(stage=stage) if stage else None
    end = EndSnapshot(outcome=outcome) if outcome else None
    assert fold_state(stage_snapshot, end, alive) == state


def test_a_running_run_with_its_numbers(client: RelayClient, tmp_path: Path) -> None:
    stage = {"schema": 1, "stage": "training", "since": 5.0, "updated": 6.0, "step": 2, "steps": 9, "new field": []}
    path = make_run(tmp_path, stage=stage, supervisor=supervisor(), job={})
    metrics = [{"step": step, "reward": step / 4, "learner_tokens_per_second_step": 10.0 * step} for step in (1, 2)]
    append(path / "attempts/01/metrics.jsonl", *metrics, b'{"step": 3, "rew')
    snapshot = RunsReader(client, str(tmp_path)).read()
    assert snapshot.problem == ""
    assert abs(snapshot.taken_at - time.time()) < 60
    [run] = snapshot.runs
    assert (run.run_id, run.name, run.algorithm, run.cluster) == ("run-1", "tiny", "grpo", "local")
    assert (run.state, run.attempt, run.is_live, run.path) == ("running", 1, True, str(path))
    assert (run.stage.step, run.stage.steps, run.end) == (2, 9, None)
    assert (run.reward, run.tokens_per_second, run.tokens_per_second_history) == (0.5, 20.0, (10.0, 20.0))


def test_runs_come_newest_first_and_only_the_newest_attempt_counts(client: RelayClient, tmp_path: Path) -> None:
    make_run(tmp_path, "old", 1.0, end={"outcome": "finished", "exit_code": 0, "reason": "all steps done", "at": 9.0})
    path = make_run(tmp_path, "new", 2.0, end={"outcome": "failed"}, stage={"stage": "ended"})
    write_json(path / "attempts/10/stage.json", {"stage": "loading"})
    write_json(path / "attempts/10/supervisor.json", supervisor())
    write_json(path / "attempts/9/end.json", {"outcome": "cancelled"})
    make_run(tmp_path, "unborn", 3.0)
    shutil.copytree(path, tmp_path / ".hidden")
    (tmp_path / "no-run").mkdir()
    runs = RunsReader(client, str(tmp_path)).read().runs
    assert [(run.run_id, run.state, run.attempt) for run in runs] == [
        ("unborn", "unknown", 0),
        ("new", "starting", 10),
        ("old", "finished", 1),
    ]
    assert runs[2].end is not None
    assert runs[2].end.reason == "all steps done"


def test_a_new_attempt_that_has_said_nothing_is_not_overlooked(client: RelayClient, tmp_path: Path) -> None:
    path = make_run(tmp_path, end={"outcome": "failed"})
    write_json(path / "attempts/02/job.json", {})
    assert (only(tmp_path, client).attempt, only(tmp_path, client).state) == (2, "unknown")


@pytest.mark.parametrize(
    ("who", "state"),
    [
        ({}, "running"),
        ({"start_time": "1"}, "lost"),
        ({"pid": 2**22 + 1}, "lost"),
        ({"host": "another-host", "pid": 2**22 + 1}, "running"),
        ({"start_time": None}, "running"),
    ],
    ids=["alive", "reused pid", "gone", "elsewhere", "no start time"],
)
def test_lost_is_a_supervisor_that_is_gone(
    client: RelayClient, tmp_path: Path, who: dict[str, Any], state: str
) -> None:
    make_run(tmp_path, stage={"stage": "training"}, supervisor=supervisor() | who)
    assert only(tmp_path, client).state == state


def test_a_supervisor_that_ends_between_two_looks_is_not_lost(
    client: RelayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = subprocess.Popen(["sleep", "600"])
    path = make_run(tmp_path, stage={"stage": "training"}, supervisor=supervisor(child.pid))
    ask = client.alive

    def end_first(identities: Any) -> Any:
        write_json(path / "attempts/01/end.json", {"outcome": "finished", "reason": "all steps done"})
        child.kill()
        child.wait()
        return ask(identities)

    monkeypatch.setattr(client, "alive", end_first)
    assert only(tmp_path, client).state == "finished"


def test_files_of_others_do_no_harm(client: RelayClient, tmp_path: Path) -> None:
    path = make_run(tmp_path, stage={"stage": "training", "detail": "\x1b[31mred", "roles": {"a\x07": "b"}})
    for name in ("end.json", "supervisor.json"):
        (path / f"attempts/01/{name}").write_bytes(b"\xff\0garbage")
    (path / "attempts/01/metrics.jsonl").write_bytes(os.urandom(5000))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/run.json").write_text("[1, 2")
    runs = {run.run_id: run for run in RunsReader(client, str(tmp_path)).read().runs}
    assert (runs["run-1"].stage.detail, runs["run-1"].stage.roles) == ("red", {"a": "b"})
    assert runs["run-1"].state == "running"
    assert (runs["broken"].state, runs["broken"].name) == ("unknown", "broken")


def test_changes_are_seen_and_deleted_runs_go(client: RelayClient, tmp_path: Path) -> None:
    path = make_run(tmp_path, stage={"stage": "queued"}, supervisor=supervisor())
    make_run(tmp_path, "other")
    reader = RunsReader(client, str(tmp_path))
    for stage, state in (("loading", "starting"), ("training", "running")):
        write_json(path / "attempts/01/stage.json", {"stage": stage})
        assert {run.run_id: run.state for run in reader.read().runs} == {"run-1": state, "other": "unknown"}
    write_json(path / "attempts/01/end.json", {"outcome": "finished"})
    append(path / "attempts/01/metrics.jsonl", {"step": 1, "reward": 1.0})
    shutil.rmtree(tmp_path / "other")
    [run] = reader.read().runs
    assert (run.state, run.reward) == ("finished", 1.0)


def test_numbers_of_ended_runs_come_newest_first_or_all_at_once(client: RelayClient, tmp_path: Path) -> None:
    for number in range(80):
        path = make_run(tmp_path, f"run-{number * 37 % 80:02d}", float(number), end={"outcome": "finished"})
        append(path / "attempts/01/metrics.jsonl", {"step": 1, "reward": 0.5})
    reader = RunsReader(client, str(tmp_path))
    runs = reader.read().runs
    assert [run.reward for run in runs] == [0.5] * 32 + [None] * 48
    assert {run.reward for run in reader.filled(runs, time.monotonic() + 60)} == {0.5}
    assert {run.reward for run in reader.read().runs} == {0.5}


def test_a_cluster_that_goes_away_leaves_the_last_list_and_says_so(tmp_path: Path) -> None:
    script = tmp_path / "python"
    make_run(tmp_path / "runs")
    client = RelayClient(LocalTransport())
    reader = RunsReader(client, str(tmp_path / "runs"))
    assert len(reader.read().runs) == 1
    client.close()
    client._transport = LocalTransport(str(script))
    away = reader.read()
    assert len(away.runs) == 1
    assert "Cannot start" in away.problem
    client._transport = LocalTransport()
    client.close()
    assert reader.read().problem == ""
    client.close()


def test_no_run_root_is_no_runs(client: RelayClient, tmp_path: Path) -> None:
    snapshot = RunsReader(client, str(tmp_path / "nowhere")).read()
    assert (snapshot.runs, snapshot.problem) == ((), "")


def test_live_runs_say_that_their_disk_is_full(
    client: RelayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path, run_id="live", stage={"stage": "training"}, supervisor=supervisor())
    make_run(tmp_path, run_id="over", end={"outcome": "finished", "exit_code": 0, "at": 1.0})
    ask = client.collect_since

    def full(*arguments: Any) -> Any:
        return msgspec.structs.replace(ask(*arguments), full=True)

    reader = RunsReader(client, str(tmp_path))
    assert {run.symptom for run in reader.read().runs} == {""}
    monkeypatch.setattr(client, "collect_since", full)
    assert {run.run_id: run.symptom for run in reader.read().runs} == {"live": "disk full", "over": ""}


def test_unchanged_files_are_not_sent_again(
    client: RelayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, age in (("old", 1000), ("new", 0)):
        write_json(tmp_path / name / "x.json", {"name": name})
        os.utime(tmp_path / name / "x.json", (time.time() - age,) * 2)
    sent: list[dict[str, bool]] = []
    ask = client.collect_since

    def count(*arguments: Any) -> Any:
        answer = ask(*arguments)
        sent.append({file.path: file.text is not None for file in answer.files})
        return answer

    monkeypatch.setattr(client, "collect_since", count)
    files = SmallFiles(client, str(tmp_path), ["*/x.json"])
    first = files.read()
    assert files.read() == first
    assert sent == [{"new/x.json": True, "old/x.json": True}, {"new/x.json": True, "old/x.json": False}]
    # a file that is moved here with an old time is new all the same
    write_json(tmp_path / "moved/x.json", {})
    os.utime(tmp_path / "moved/x.json", (1.0, 1.0))
    assert files.read()["moved/x.json"] == "{}"
    assert files.read()["old/x.json"] == first["old/x.json"]


def test_without_a_record_there_is_no_run() -> None:
    assert run_facts("x", {"attempts/01/stage.json": "{}"}) is None


def test_a_row_shows_what_the_newest_attempt_asks_for(client: RelayClient, tmp_path: Path) -> None:
    path = make_run(tmp_path, stage={"stage": "training"}, supervisor=supervisor())
    before = only(tmp_path, client)
    hardware = load_layout(resolve("local/grpo-tiny"), ["hardware.nodes=2"]).layout.hardware
    write_json(path / "attempts/01/job.json", {"held": held(hardware)})
    assert (before.nodes, before.gpu) != (2, "cpu")
    row = only(tmp_path, client)
    assert (row.nodes, row.gpus_per_node, row.gpu, row.num_gpus, shape_of(row)) == (2, 3, "cpu", 6, "2×3c")
    further = "hardware.more={few: {nodes: 2, gpus_per_node: 1, roles: [rollout]}}"
    unlike = load_layout(resolve("local/grpo-tiny"), ["hardware.gpus_per_node=2", further]).layout.hardware
    write_json(path / "attempts/01/job.json", {"held": held(unlike)})
    row = only(tmp_path, client)
    assert (row.nodes, row.num_gpus, shape_of(row)) == (3, 4, "1×2+2×1c")


def test_the_next_attempt_is_not_lost_where_the_one_before_ended_between_two_questions(
    client: RelayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is lost is swept: a run that goes on by itself would lose its new attempt to a look at the list."""
    path = make_run(tmp_path, stage={"stage": "training"}, supervisor=supervisor(start_time="1"))
    ask = client.alive

    def goes_on(processes: Sequence[ProcessIdentity]) -> Sequence[bool | None]:
        write_json(path / "attempts/01/end.json", {"outcome": "failed"})
        write_json(path / "attempts/02/supervisor.json", supervisor())
        write_json(path / "attempts/02/stage.json", {"stage": "loading"})
        return ask(processes)

    monkeypatch.setattr(client, "alive", goes_on)
    assert [(run.attempt, run.state) for run in RunsReader(client, str(tmp_path)).read().runs] == [(2, "starting")]
    shutil.rmtree(path)
    path = make_run(tmp_path, stage={"stage": "training"}, supervisor=supervisor(start_time="1"))
    shown = RunWatcher(client, str(path)).snapshot().summary
    assert (shown.attempt, shown.state) == (2, "starting")


@pytest.mark.parametrize("has_hard_links", [True, False])
def test_the_first_word_on_an_end_stays_and_only_its_writer_does_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_hard_links: bool
) -> None:
    """A supervisor and the guard that took it for dead come to it at once."""
    if not has_hard_links:
        monkeypatch.setattr(os, "link", refused)
    attempt = make_run(tmp_path, job={"uuid": "u"}) / "attempts/01"
    write_stage = rundir.write_stage

    def meanwhile(*words: str) -> None:
        monkeypatch.setattr(rundir, "write_stage", write_stage)
        assert rundir.write_end(str(attempt), "lost", None, "the supervisor was killed")

    monkeypatch.setattr(rundir, "write_stage", meanwhile)
    assert not rundir.write_end(str(attempt), "finished", 0, "all steps done")
    runner = AttemptRunner(str(attempt))
    assert runner._end(Verdict("finished", 0, "all steps done")) is None
    assert runner.tellings == [], "told of by who wrote it"
    assert (rundir.read_json(f"{attempt}/end.json") or {})["outcome"] == "lost"
    assert sorted(one.name for one in attempt.iterdir()) == ["end.json", "events.jsonl", "job.json", "stage.json"]
    assert (attempt / "events.jsonl").read_text().count('"kind":"end"') == 1


def test_a_link_whose_answer_was_lost_is_still_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS asks again, and finds the name taken: by itself."""
    attempt = make_run(tmp_path, job={"uuid": "u"}) / "attempts/01"
    link = os.link

    def twice(old: str, new: str) -> None:
        link(old, new)
        link(old, new)

    monkeypatch.setattr(os, "link", twice)
    assert rundir.write_end(str(attempt), "finished", 0, "all steps done")


def refused(*_: str) -> None:
    """What a disk without hard links answers."""
    raise PermissionError(1, "Operation not permitted")
