"""What is only to be heard on a run's head node, noted there and read elsewhere."""

from __future__ import annotations

import http.client
import json
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from watch_support import (
    NODE,
    STATUS,
    TOKEN,
    Server,
    actor,
    await_that,
    make_run,
    state_answer,
    supervisor,
    write_json,
)

from rltui.cluster.relay_client import RelayClient
from rltui.onnode import rundir, server_notes
from rltui.onnode.ask_http import ask
from rltui.onnode.server_notes import LOGICAL, NODES, STATE_API, ServerNotes
from rltui.watch import actors as watched
from rltui.watch.notes import parse_actors_note, parse_status_note
from rltui.watch.run_watcher import RunWatcher

RAYLET = {"nodeId": NODE, "nodeManagerHostname": "node1", "state": "ALIVE"}
NODES_ANSWER = {"data": {"summary": [{"raylet": RAYLET, "cpu": 3}]}}
"""As it is before the node's agent has reported: then the node has a ``hostname`` of its own too."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server().running() as server:
        server.pages = {
            STATE_API: (200, state_answer(actor())),
            NODES: (200, json.dumps(NODES_ANSWER).encode()),
            server_notes.STATUS: (200, json.dumps(STATUS).encode()),
        }
        yield server


@pytest.fixture
def run(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run in training whose servers are on another node than the relay."""
    monkeypatch.setenv("SLURMD_NODENAME", "head-of-the-job")  # what the notes' own process is told there
    path = make_run(tmp_path, stage={"stage": "training"}, supervisor=supervisor())
    place = {"schema": 1, "token": TOKEN, "pid": 1, "host": "head-of-the-job"}
    write_json(path / "attempts/01/ray.json", {**place, "address": "x", "dashboard": server.url})
    write_json(path / "attempts/01/status.json", {**place, "url": server.url})
    return path


def died(reason: str, message: str) -> dict[str, Any]:
    return {"actor_died_error_context": {"reason": reason, "error_message": message}}


def test_servers_elsewhere_are_seen_through_the_notes_and_never_asked(
    client: RelayClient, server: Server, run: Path
) -> None:
    watcher = RunWatcher(client, str(run))
    early = watcher.snapshot()
    assert (early.actors, early.actors_problem, early.status.problem, server.asked) == ((), "", "", [])
    ServerNotes(str(run / "attempts/01")).look()
    asked = len(server.asked)
    seen = watcher.snapshot()
    [one] = seen.actors
    assert (one.name, one.node, one.pid, one.state) == ("learner 0", "node1", 9350, "ALIVE")
    assert [queue.current for queue in seen.status.queues] == [3, 0]
    assert 0 <= seen.taken_at - seen.actors_noted_at < 60
    assert seen.status.noted_at >= seen.actors_noted_at > 0
    assert (seen.actors_problem, seen.status.problem, len(server.asked)) == ("", "", asked)
    # a note's time is cut to hundredths of a second
    await_that(lambda: time.time() > seen.actors_noted_at + 0.01, "a later note has a later time")
    ServerNotes(str(run / "attempts/01")).look()
    again = watcher.snapshot()
    assert again.actors_noted_at > seen.actors_noted_at
    assert again.actors is seen.actors, "thousands that are the same are not counted and sorted again"


def test_a_server_of_another_node_is_not_looked_for_on_this_one(server: Server, run: Path) -> None:
    write_json(run / "attempts/01/status.json", {"schema": 1, "url": server.url, "host": "another"})
    ServerNotes(str(run / "attempts/01")).look()
    assert not (run / "attempts/01/status-now.json").exists()
    assert not [path for path in server.asked if server_notes.STATUS in str(path)]


def test_why_actors_died_is_read_after_the_end(client: RelayClient, server: Server, run: Path) -> None:
    notes = ServerNotes(str(run / "attempts/01"))
    notes.look()
    killed = actor(actor_id="a", state="DEAD", death_cause=died("WORKER_DIED", "killed by signal 9"))
    orphan = actor(state="DEAD", death_cause=died("OWNER_DIED", "its owner has died"))
    server.pages[STATE_API] = (200, state_answer(killed, orphan))
    notes.look(last=True)
    write_json(run / "attempts/01/end.json", {"outcome": "failed", "exit_code": 1, "reason": "x", "at": 9.0})
    seen = RunWatcher(client, str(run)).snapshot()
    assert [one.death_cause for one in seen.actors] == ["killed by signal 9"]
    assert (seen.summary.state, seen.actors_problem) == ("failed", "")


def test_what_does_not_change_is_not_written_again(server: Server, run: Path) -> None:
    attempt = run / "attempts/01"
    notes = ServerNotes(str(attempt))
    notes.look()
    before = [(attempt / name).stat().st_ino for name in ("actors.json", "status-now.json")]
    server.pages[server_notes.STATUS] = (200, json.dumps({**STATUS, "last_updated": 51.0}).encode())
    notes.look()
    assert [(attempt / name).stat().st_ino for name in ("actors.json", "status-now.json")] == before
    server.pages[STATE_API] = (200, state_answer(actor(state="DEAD")))
    notes.look()
    assert parse_actors_note((attempt / "actors.json").read_text()).actors[0].state == "DEAD"
    assert stat.S_IMODE((attempt / "actors.json").stat().st_mode) == 0o600
    assert server.asked.count(NODES) == 1


def test_a_node_whose_name_comes_late_is_asked_for_again(
    server: Server, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run / "attempts/01/actors.json"
    notes = ServerNotes(str(run / "attempts/01"))
    server.pages[NODES] = (200, json.dumps({"data": {"summary": []}}).encode())
    notes.look()
    assert parse_actors_note(path.read_text()).actors[0].node == NODE[:12]
    server.pages[NODES] = (200, json.dumps(NODES_ANSWER).encode())
    notes.look()
    assert server.asked.count(NODES) == 1, "not at once"
    monkeypatch.setattr(server_notes, "NODES_EVERY_S", 0.0)
    notes.look()
    assert parse_actors_note(path.read_text()).actors[0].node == "node1"


def test_a_server_in_trouble_leaves_what_it_said_and_no_secret(server: Server, run: Path) -> None:
    attempt = run / "attempts/01"
    secret = actor(serialized_runtime_env='{"env_vars": {"KEY": "s3cret"}}')
    server.pages[STATE_API] = (200, state_answer(secret))
    notes = ServerNotes(str(attempt))
    notes.look()
    server.pages = {}
    notes.look()
    text = (attempt / "actors.json").read_text()
    note, status = parse_actors_note(text), parse_status_note((attempt / "status-now.json").read_text())
    assert (len(note.actors), len(status.queues)) == (1, 2)
    assert "404" in note.problem
    assert "404" in status.problem
    assert "s3cret" not in text
    assert TOKEN not in text


def test_without_the_state_api_the_dashboard_s_own_list_is_noted(server: Server, run: Path) -> None:
    one = {"actorId": "d", "address": {"nodeId": NODE}, "className": "Engine", "state": "ALIVE", "pid": 7, "gpus": []}
    server.pages |= {STATE_API: (500, b"{}"), LOGICAL: (200, json.dumps({"data": {"actors": {"d": one}}}).encode())}
    ServerNotes(str(run / "attempts/01")).look()
    [seen] = parse_actors_note((run / "attempts/01/actors.json").read_text()).actors
    assert (seen.class_name, seen.node, seen.pid) == ("Engine", "node1", 7)


def test_all_that_is_shown_of_an_actor_is_noted() -> None:
    assert set(watched._Actor.__struct_fields__) <= server_notes.KEPT
    assert set(watched._LogicalActor.__struct_encode_fields__) <= server_notes.KEPT


@pytest.mark.parametrize("text", ["", "[]", "{", '{"state": 3, "nodes": [], "at": "x", "problem": {}}'])
def test_notes_that_are_none_are_a_picture_all_the_same(text: str) -> None:
    assert (parse_actors_note(text).actors, parse_status_note(text).queues) == ((), ())


def test_the_notes_end_with_its_pipe_after_a_last_look(server: Server, run: Path) -> None:
    argv = [sys.executable, "-m", "rltui.onnode.server_notes", "--attempt", str(run / "attempts/01")]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        await_that((run / "attempts/01/status-now.json").exists, "the first look is noted")
        process.terminate()  # Slurm's word to all is not its own
        asked = len(server.asked)
        process.stdin.close()
        assert process.wait(60) == 0
        assert len(server.asked) > asked
    finally:
        process.kill()
        process.wait()


def test_what_a_thousand_actors_died_of_fits_into_a_note(client: RelayClient, run: Path, server: Server) -> None:
    cause = {"actor_died_error_context": {"error_message": f"ImportError: first\n{'x' * 3000}\nlast line"}}
    names = [f"reward worker {number}" for number in range(1000)]
    dead = [actor(name=name, actor_id=name, state="DEAD", death_cause=cause) for name in names]
    server.pages[STATE_API] = (200, state_answer(*dead))
    ServerNotes(str(run / "attempts/01")).look()
    picture = RunWatcher(client, str(run)).snapshot()
    assert (picture.actors_problem, len(picture.actors)) == ("", 1000)
    assert picture.actors[0].death_cause.startswith("ImportError: first")


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", b"no HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n{"]
)
def test_a_server_that_is_ended_as_it_answers_is_a_problem_like_any_other(said: bytes) -> None:
    def answer() -> None:
        link, _ = listener.accept()
        with link:
            link.recv(4096)
            link.sendall(said)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer)
        reply = ask(f"http://127.0.0.1:{listener.getsockname()[1]}/api/x", "", 30.0)
        answered.result()
    assert (reply.value, reply.status) == (None, 0)
    assert "does not answer" in reply.problem


def test_a_whole_answer_is_read_as_python_3_8_can(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    read = http.client.HTTPResponse.read

    def older(self: http.client.HTTPResponse, amt: int | None = None) -> bytes:
        return read(self, None if amt is None else len(bytearray(amt)))  # which makes a place for it first

    monkeypatch.setattr(http.client.HTTPResponse, "read", older)
    assert ask(server.url + server_notes.STATUS, TOKEN, 30.0).value == STATUS


def test_half_a_character_in_an_answer_does_not_end_the_notes(tmp_path: Path) -> None:
    path = tmp_path / rundir.STATUS_NOW
    server_notes.Note(str(path)).write({"status": json.loads('{"detail": "cut here: \\ud83d"}')}, "")
    assert json.loads(path.read_text())["status"] == {"detail": "cut here: ?"}
