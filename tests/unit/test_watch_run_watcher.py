"""One run watched from its birth to its end, with everything that can go wrong with its sources."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from watch_support import STATUS, TOKEN, Server, actor, append, make_run, state_answer, supervisor, write_json

from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient
from rltui.errors import ClusterError, RltuiError
from rltui.watch.actors import STATE_API
from rltui.watch.run_watcher import RunWatcher
from rltui.watch.status import PATH


class Clock:
    """Monotonic seconds that stand still until they are moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def full_run(root: Path, server: Server) -> Path:
    """A run in training with every source there is."""
    path = make_run(root, stage={"stage": "training", "step": 2, "steps": 9}, supervisor=supervisor(), job={})
    attempt = path / "attempts/01"
    write_json(attempt / "ray.json", {"schema": 1, "address": "x", "dashboard": server.url, "token": TOKEN, "pid": 1})
    write_json(attempt / "status.json", {"schema": 1, "url": server.url, "token": TOKEN, "pid": 1})
    append(
        attempt / "metrics.jsonl",
        *({"step": step, "reward": step / 4, "actor_tokens_per_second": 7} for step in (1, 2)),
    )
    append(attempt / "events.jsonl", {"time": 1.0, "kind": "stage", "text": "train\x1b[1ming"}, b"garbage\n")
    append(attempt / "gpu-node1.jsonl", {"t": 9.0, "host": "node1", "cpus": 2})
    append(attempt / "out.log", b"hello\nwor")
    server.pages = {STATE_API: (200, state_answer(actor())), PATH: (200, json.dumps(STATUS).encode())}
    return path


def test_everything_in_one_picture(client: RelayClient, tmp_path: Path) -> None:
    with Server().running() as server:
        path = full_run(tmp_path, server)
        snapshot = RunWatcher(client, f"{path}/").snapshot()
    assert (snapshot.problem, snapshot.actors_problem, snapshot.status.problem) == ("", "", "")
    summary = snapshot.summary
    assert (summary.run_id, summary.state, summary.attempt, summary.path) == ("run-1", "running", 1, str(path))
    assert (summary.reward, summary.tokens_per_second, summary.tokens_per_second_history) == (0.5, 7.0, (7.0, 7.0))
    assert snapshot.metrics.steps == (1, 2)
    assert [host.host for host in snapshot.hosts] == ["node1"]
    assert [one.name for one in snapshot.actors] == ["learner 0"]
    assert len(snapshot.status.queues) == 2
    assert snapshot.log.lines == ("hello",)
    assert snapshot.events == ({"time": 1.0, "kind": "stage", "text": "training", "attempt": 1},)
    assert snapshot.taken_at > 0


def test_only_what_is_new_is_read_and_servers_are_asked_once_a_second(client: RelayClient, tmp_path: Path) -> None:
    clock = Clock()
    with Server().running() as server:
        path = full_run(tmp_path, server)
        watcher = RunWatcher(client, str(path), clock)
        first = watcher.snapshot()
        append(path / "attempts/01/out.log", b"ld\n")
        append(path / "attempts/01/metrics.jsonl", {"step": 3, "reward": 0.75})
        second = watcher.snapshot()
        assert server.asked.count(PATH) == server.asked.count(STATE_API) == 1
        clock.now += 1.0
        watcher.snapshot()
        assert server.asked.count(PATH) == server.asked.count(STATE_API) == 2
    assert first.metrics is not second.metrics
    assert second.log.lines == ("hello", "world")
    assert second.summary.reward == 0.75
    assert len(second.events) == 1


def test_servers_in_trouble_are_problems_and_are_asked_less(client: RelayClient, tmp_path: Path) -> None:
    clock = Clock()
    with Server().running() as server:
        path = full_run(tmp_path, server)
        server.pages = {}
        watcher = RunWatcher(client, str(path), clock)
        snapshot = watcher.snapshot()
        assert "404" in snapshot.status.problem
        assert "404" in snapshot.actors_problem
        assert snapshot.metrics.steps == (1, 2)
        asked = server.asked.count(PATH)
        for later, times in ((1.9, 0), (0.1, 1), (3.9, 0), (0.1, 1)):
            clock.now += later
            watcher.snapshot()
            asked += times
            assert server.asked.count(PATH) == asked
    clock.now += 100
    assert "refused" in watcher.snapshot().status.problem.lower()


def test_the_next_attempt_takes_over(client: RelayClient, tmp_path: Path) -> None:
    with Server().running() as server:
        path = full_run(tmp_path, server)
        watcher = RunWatcher(client, str(path))
        watcher.snapshot()
        write_json(path / "attempts/01/end.json", {"outcome": "failed", "exit_code": 1, "reason": "out of memory"})
        ended = watcher.snapshot()
        assert (ended.summary.state, ended.actors, ended.status.queues) == ("failed", (), ())
        assert ended.summary.end is not None
        assert (ended.summary.end.reason, ended.log.lines) == ("out of memory", ("hello",))
        write_json(path / "attempts/02/stage.json", {"stage": "training"})
        write_json(path / "attempts/02/supervisor.json", supervisor())
        append(path / "attempts/02/metrics.jsonl", {"step": 2, "reward": 0.1})
        append(path / "attempts/02/out.log", b"again\n")
        append(path / "attempts/02/events.jsonl", {"time": 2.0, "kind": "stage", "text": "training"})
        resumed = watcher.snapshot()
    assert (resumed.summary.state, resumed.summary.attempt) == ("running", 2)
    assert resumed.metrics.series["reward"] == (0.25, 0.1)
    assert (resumed.log.lines, resumed.hosts, resumed.actors) == (("again",), (), ())
    assert [event["attempt"] for event in resumed.events] == [1, 2]


def test_steps_are_read_on_while_the_rest_of_a_chain_waits(client: RelayClient, tmp_path: Path) -> None:
    def begins(number: int, at: float, step: int) -> None:
        write_json(path / f"attempts/{number:02d}/job.json", {})
        write_json(path / f"attempts/{number:02d}/supervisor.json", supervisor())
        stage = {"stage": "training", "history": [{"stage": "training", "at": at}]}
        write_json(path / f"attempts/{number:02d}/stage.json", stage)
        append(path / f"attempts/{number:02d}/metrics.jsonl", {"step": step})

    def ends(number: int, at: float) -> None:
        write_json(path / f"attempts/{number:02d}/end.json", {"outcome": "failed", "reason": "x", "at": at})

    path = make_run(tmp_path)
    for number in (1, 2, 3):
        write_json(path / f"attempts/{number:02d}/job.json", {})
    begins(1, 1.0, 1)
    watcher = RunWatcher(client, str(path))
    assert watcher.snapshot().metrics.steps == (1,)
    append(path / "attempts/01/metrics.jsonl", {"step": 2})
    append(path / "attempts/01/events.jsonl", {"time": 2.0, "kind": "error", "text": "late"})
    picture = watcher.snapshot()
    assert (picture.metrics.steps, len(picture.events)) == ((1, 2), 1)
    # one that is requeued takes the number behind the chain, and begins before the rest of it
    ends(1, 2.0)
    begins(4, 3.0, 3)
    assert watcher.snapshot().metrics.steps == (1, 2, 3)
    ends(4, 4.0)
    begins(2, 5.0, 4)
    picture = watcher.snapshot()
    assert (picture.summary.attempt, picture.metrics.steps) == (2, (1, 2, 3, 4))


def test_a_run_that_has_only_just_begun(client: RelayClient, tmp_path: Path) -> None:
    path = make_run(tmp_path)
    watcher = RunWatcher(client, str(path))
    assert (watcher.snapshot().summary.state, watcher.snapshot().log.lines) == ("unknown", ())
    write_json(path / "attempts/01/job.json", {})
    write_json(path / "attempts/01/supervisor.json", supervisor())
    assert watcher.snapshot().summary.state == "queued"


def test_hostile_files_are_a_picture_all_the_same(client: RelayClient, tmp_path: Path) -> None:
    path = make_run(tmp_path, stage={"stage": "training"}, supervisor=supervisor())
    attempt = path / "attempts/01"
    for name in ("metrics.jsonl", "events.jsonl", "gpu-x.jsonl", "out.log", "ray.json", "status.json"):
        (attempt / name).write_bytes(os.urandom(20_000) + b"\n" + b"x" * 600_000)
    watcher = RunWatcher(client, str(path))
    snapshot = watcher.snapshot()
    assert (snapshot.summary.state, snapshot.metrics.steps, snapshot.problem) == ("running", (), "")
    assert all(line == "" or line.isprintable() for line in snapshot.log.lines)
    shutil.rmtree(attempt.parent)
    assert watcher.snapshot().summary.state == "unknown"


def test_a_file_that_cannot_be_read_is_a_problem(client: RelayClient, tmp_path: Path) -> None:
    path = make_run(tmp_path, stage={"stage": "training"}, supervisor=supervisor())
    (path / "attempts/01/out.log").mkdir()
    assert "out.log" in RunWatcher(client, str(path)).snapshot().problem


def test_there_is_no_such_run(client: RelayClient, tmp_path: Path) -> None:
    with pytest.raises(RltuiError, match="no run") as error:
        RunWatcher(client, str(tmp_path / "nowhere")).snapshot()
    assert not isinstance(error.value, ClusterError)


def test_a_relay_that_is_killed_goes_unnoticed(client: RelayClient, tmp_path: Path) -> None:
    path = make_run(tmp_path, stage={"stage": "training"}, supervisor=supervisor())
    watcher = RunWatcher(client, str(path))
    watcher.snapshot()
    os.kill(client.hello().pid, signal.SIGKILL)
    assert watcher.snapshot().problem == ""


def test_a_cluster_that_is_away_leaves_the_last_picture(client: RelayClient, tmp_path: Path) -> None:
    path = make_run(tmp_path, stage={"stage": "training", "step": 5}, supervisor=supervisor())
    watcher, unborn = RunWatcher(client, str(path)), RunWatcher(client, str(path))
    watcher.snapshot()
    client.close()
    client._transport = LocalTransport(str(tmp_path / "no-python"))
    away = watcher.snapshot()
    assert (away.summary.stage.step, "Cannot start" in away.problem) == (5, True)
    with pytest.raises(ClusterError, match="Cannot start"):
        unborn.snapshot()
    client.close()
    client._transport = LocalTransport()
    assert watcher.snapshot().problem == ""
