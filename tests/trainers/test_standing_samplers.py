"""Which of a standing Ray's jobs are the attempt's, and which of its nodes want a sampler."""

from __future__ import annotations

from typing import Any

from trainers.standing_ray import jobs_of, nodes_without_sampler


def job(number: str, pid: int, address: str = "10.0.0.1", dead: bool = False) -> dict[str, Any]:
    return {"JobID": number, "DriverPid": pid, "DriverIPAddress": address, "IsDead": dead}


def actor(node: str, state: str = "ALIVE") -> dict[str, Any]:
    return {"State": state, "Address": {"NodeID": node}}


def node(number: str, host: str, alive: bool = True) -> dict[str, Any]:
    return {"NodeID": number, "NodeManagerHostname": host, "Alive": alive}


def test_a_job_is_the_attempt_s_by_its_driver_on_this_node() -> None:
    table = [job("03", 7), job("01", 8), job("04", 7, "10.0.0.2"), job("02", 9), job("00", 7, dead=True)]
    assert jobs_of(table, [7, 8], "10.0.0.1") == ["01", "03"]


def test_each_host_with_live_actors_gets_one_sampler() -> None:
    nodes = [node("a", "n1.site"), node("b", "n2.site"), node("c", "n3"), node("d", "n4"), node("e", "n5", alive=False)]
    actors = [actor("a"), actor("b"), actor("b"), actor("c", "DEAD"), actor("e"), actor("")]
    assert nodes_without_sampler(actors, nodes, ["n1"]) == {"n2": "b"}
    assert nodes_without_sampler(actors, nodes, ["n1", "n2"]) == {}
