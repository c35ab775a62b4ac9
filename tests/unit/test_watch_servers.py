"""Ray's dashboard and the status endpoint, asked through a relay; answers of Ray 2.60 as it gave them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime

import pytest
from msgspec import structs
from watch_support import NODE, STATUS, TOKEN, Server, actor, state_answer

from rltui.cluster.relay_client import RelayClient
from rltui.watch.actors import (
    LOGICAL,
    NODES,
    NODES_EVERY_S,
    OF_JOB,
    STATE_API,
    ActorsReader,
    parse_nodes,
    parse_state_api,
)
from rltui.watch.endpoint import Endpoint, Throttle, pause_s
from rltui.watch.snapshots import StatusSnapshot
from rltui.watch.status import PATH, parse_status, read_status


@pytest.fixture
def server() -> Iterator[Server]:
    with Server().running() as server:
        yield server


DIED_STARTING = {
    "creation_task_failure_context": {
        "serialized_exception": "gAWVRgcAAAAAAACM",
        "formatted_exception_string": 'Traceback (most recent call last):\n\n  File "python/ray/_raylet.pyx", '
        'line 2198, in ray._raylet.execute_task\n\n  File "probe.py", line 12, in __init__\n\n'
        "ValueError: cannot \x1b[31mload\x1b[0m the model\n",
        "language": "PYTHON",
    }
}
DIED_LATER = {
    "actor_died_error_context": {
        "error_message": "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR " * 9,
        "reason": "WORKER_DIED",
        "pid": 9419,
        "never_started": False,
    }
}
LOGICAL_ANSWER = {
    "result": True,
    "msg": "All actors fetched.",
    "data": {
        "actors": {
            "ddb2": {
                "actorId": "ddb2",
                "address": {"nodeId": NODE, "ipAddress": "192.0.2.2", "port": 34527, "workerId": "c969"},
                "name": "learner 0",
                "className": "PolicyTrainer",
                "state": "DEAD",
                "numRestarts": "0",
                "timestamp": 1795173515066.0,
                "pid": 9350,
                "exitDetail": "Traceback (most recent call last):\n\n  File\n\nValueError: no",
                "gpus": [],
                "processStats": None,
            }
        }
    },
}
RAYLET = {"nodeId": NODE, "nodeManagerHostname": "node1", "state": "ALIVE"}
NODES_ANSWER = {"data": {"summary": [{"now": 1.0, "raylet": RAYLET}]}}
"""As it is before the node's agent has reported: then the node has a ``hostname`` of its own too."""


def test_actors_with_their_hosts(client: RelayClient, server: Server) -> None:
    server.pages = {
        STATE_API: (200, state_answer(actor(), actor(name=None, repr_name="engine(1)", pid=None, node_id=None))),
        NODES: (200, json.dumps(NODES_ANSWER).encode()),
    }
    reader = ActorsReader(client)
    for _ in range(2):
        reader.read(Endpoint(server.url, TOKEN))
    first, second = reader.actors
    assert reader.problem == ""
    assert (first.class_name, first.name, first.state) == ("PolicyTrainer", "learner 0", "ALIVE")
    assert (first.node, first.pid, first.restarts, first.death_cause) == ("node1", 9350, 2, "")
    assert (second.name, second.node, second.pid) == ("engine(1)", "", 0)
    assert server.asked == [STATE_API, NODES, STATE_API]
    by_its_agent = {"data": {"summary": [{"hostname": "node2", "raylet": {"nodeId": "b"}}]}}
    assert parse_nodes(json.dumps(by_its_agent).encode()) == {"b": "node2"}, "in notes of older versions"


def test_why_actors_died() -> None:
    actors = parse_state_api(state_answer(actor(death_cause=DIED_STARTING), actor(death_cause=DIED_LATER)))
    assert actors is not None
    assert actors[0].death_cause == "ValueError: cannot load the model"
    assert actors[1].death_cause.startswith("The actor is dead because its worker process has died.")
    assert len(actors[1].death_cause) == 300


def test_of_a_ray_that_has_others_actors_too_only_the_run_s_are_shown(client: RelayClient, server: Server) -> None:
    mine = json.dumps(LOGICAL_ANSWER).replace('"className"', '"jobId": "0b000000", "className"').encode()
    reader, endpoint = ActorsReader(client), Endpoint(server.url, TOKEN, jobs=("0a000000", "0b000000"))
    server.pages = {
        STATE_API + OF_JOB + "0a000000": (200, state_answer(actor(name="first"))),
        STATE_API + OF_JOB + "0b000000": (200, state_answer(actor(name="second"))),
    }
    reader.read(endpoint)
    assert [one.name for one in reader.actors] == ["first", "second"]
    server.pages = {LOGICAL: (200, mine)}
    reader.read(endpoint)
    assert [one.name for one in reader.actors] == ["learner 0"]
    reader.read(structs.replace(endpoint, jobs=("0c000000",)))
    assert reader.actors == ()
    asked = len(server.asked)
    reader.read(structs.replace(endpoint, jobs=()))
    assert (reader.actors, reader.problem, len(server.asked)) == ((), "", asked)


@pytest.mark.parametrize("raylet", [{"nodeId": NODE}, {}], ids=["without its name", "without anything"])
def test_a_node_whose_name_comes_late_is_asked_for_again(
    raylet: dict[str, str], client: RelayClient, server: Server
) -> None:
    times = iter((0.0, NODES_EVERY_S))
    early = json.dumps({"data": {"summary": [{"raylet": raylet}]}}).encode()
    server.pages = {STATE_API: (200, state_answer(actor())), NODES: (200, early)}
    reader = ActorsReader(client, lambda: next(times))
    reader.read(Endpoint(server.url, TOKEN))
    assert reader.actors[0].node == NODE[:12]
    server.pages[NODES] = (200, json.dumps(NODES_ANSWER).encode())
    reader.read(Endpoint(server.url, TOKEN))
    assert reader.actors[0].node == "node1"


def test_a_node_that_nobody_knows_is_not_asked_for_all_the_time(client: RelayClient, server: Server) -> None:
    times = iter((0.0, 1.0, NODES_EVERY_S))
    server.pages = {STATE_API: (200, state_answer(actor()))}
    reader = ActorsReader(client, lambda: next(times))
    for _ in range(3):
        reader.read(Endpoint(server.url, TOKEN))
        assert reader.actors[0].node == NODE[:12]
    assert server.asked.count(NODES) == 2


def test_without_the_state_api_the_dashboard_s_own_will_do(client: RelayClient, server: Server) -> None:
    server.pages = {STATE_API: (500, b"{}"), LOGICAL: (200, json.dumps(LOGICAL_ANSWER).encode())}
    reader = ActorsReader(client)
    reader.read(Endpoint(server.url, TOKEN))
    [one] = reader.actors
    assert (one.name, one.class_name, one.state, one.pid) == ("learner 0", "PolicyTrainer", "DEAD", 9350)
    assert one.death_cause == "ValueError: no"


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ((200, b"<html>"), "cannot be understood"),
        ((200, b'{"data": {"result": {"result": [1]}}}'), "cannot be understood"),
        ((418, b""), "418"),
    ],
)
def test_a_dashboard_in_trouble_leaves_what_it_said(
    client: RelayClient, server: Server, page: tuple[int, bytes], problem: str
) -> None:
    server.pages = {STATE_API: (200, state_answer(actor()))}
    reader = ActorsReader(client)
    reader.read(Endpoint(server.url, TOKEN))
    server.pages = {STATE_API: page}
    reader.read(Endpoint(server.url, TOKEN))
    assert problem in reader.problem
    assert len(reader.actors) == 1


def test_a_wrong_token_is_said_and_never_shown(client: RelayClient, server: Server) -> None:
    reader = ActorsReader(client)
    reader.read(Endpoint(server.url, "wr0ng-secret"))
    assert "token was refused" in reader.problem
    status = read_status(client, Endpoint(server.url, "wr0ng-secret"), StatusSnapshot())
    assert "token was refused" in status.problem
    assert "wr0ng-secret" not in reader.problem + status.problem


def test_status(client: RelayClient, server: Server) -> None:
    server.pages = {PATH: (200, json.dumps(STATUS).encode())}
    status = read_status(client, Endpoint(server.url + "/", TOKEN), StatusSnapshot(problem="old"))
    assert [(queue.name, queue.current, queue.maxsize) for queue in status.queues] == [
        ("Prompt Queue", 3, 32),
        ("Inference Results Queue", 0, 8),
    ]
    assert (status.taken_at, status.phase, status.phase_since, status.problem) == (50.5, "generate", 49.0, "")
    assert (status.learner_weight_version, status.engine_weight_versions) == (13, {"engine 0": 12})
    assert (status.prefill_tokens_per_second, status.decode_tokens_per_second) == (10.0, 20.5)
    server.pages = {}
    later = read_status(client, Endpoint(server.url, TOKEN), status)
    assert (later.queues, later.phase) == (status.queues, "generate")
    assert "404" in later.problem


def test_open_instruct_s_smaller_status_is_understood() -> None:
    known = ("should_stop", "last_updated", "queues", "token_stats")
    status = parse_status(json.dumps({name: STATUS[name] for name in known}).encode())
    assert (status.problem, len(status.queues), status.phase, status.learner_weight_version) == ("", 2, "", None)


def test_a_time_in_words_is_a_time_and_one_that_is_none_is_not() -> None:
    told = parse_status(
        b'{"last_updated": "2026-01-02T03:04:05.5", "queues": {"Prompt Queue": {"current": 3, "maxsize": 8}}}'
    )
    assert told.taken_at == datetime(2026, 1, 2, 3, 4, 5, 500_000).timestamp()
    assert [queue.current for queue in told.queues] == [3]
    assert parse_status(b'{"last_updated": "yesterday"}').taken_at == 0.0


@pytest.mark.parametrize("body", [b"", b"[]", b'{"queues": 3}', b'{"queues": {"a": {"current": "x"}}}', b"\xff\0"])
def test_a_status_that_is_none(body: bytes) -> None:
    assert "cannot be understood" in parse_status(body).problem


def test_a_server_that_is_not_there_is_asked_less_and_less() -> None:
    assert [pause_s(failures) for failures in (0, 1, 2, 4, 5, 99)] == [1, 2, 4, 16, 30, 30]
    throttle = Throttle()
    assert throttle.is_due(5.0)
    throttle.asked(5.0, failed=False)
    assert [throttle.is_due(now) for now in (5.9, 6.0)] == [False, True]
    throttle.asked(6.0, failed=True)
    assert [throttle.is_due(now) for now in (7.9, 8.0)] == [False, True]
    throttle.asked(8.0, failed=False)
    assert throttle.is_due(9.0)
