"""Ray actors of a run, from the dashboard's HTTP API (Ray 2.60), without Ray.

``/api/v0/actors`` is the State API; ``/logical/actors`` is what the dashboard's own pages use, and says less.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from rltui.cluster.relay_client import RelayClient
from rltui.onnode import server_notes
from rltui.watch.endpoint import Endpoint, get
from rltui.watch.lines import decode
from rltui.watch.owners import ActorSnapshot
from rltui.watch.text import plain

STATE_API, LOGICAL, NODES = server_notes.STATE_API, server_notes.LOGICAL, server_notes.NODES
OF_JOB = server_notes.OF_JOB
NODES_EVERY_S = server_notes.NODES_EVERY_S
CAUSE_LIMIT = 300

Data = TypeVar("Data")


class _Actor(Struct, frozen=True):
    actor_id: str
    class_name: str | None = None
    name: str | None = None
    repr_name: str | None = None
    state: str | None = None
    node_id: str | None = None
    pid: int | None = None
    num_restarts: int | None = None
    death_cause: dict[str, Any] | None = None


class _ActorList(Struct, frozen=True):
    result: tuple[_Actor, ...]


class _ActorData(Struct, frozen=True):
    result: _ActorList


class _Address(Struct, frozen=True, rename="camel"):
    node_id: str | None = None


class _LogicalActor(Struct, frozen=True, rename="camel"):
    actor_id: str
    class_name: str | None = None
    name: str | None = None
    repr_name: str | None = None
    state: str | None = None
    pid: int | None = None
    num_restarts: int | None = None
    exit_detail: str | None = None
    job_id: str | None = None
    address: _Address = _Address()


class _LogicalData(Struct, frozen=True):
    actors: dict[str, _LogicalActor]


class _Raylet(Struct, frozen=True, rename="camel"):
    node_id: str = ""
    node_manager_hostname: str = ""


class _Node(Struct, frozen=True):
    hostname: str = ""
    raylet: _Raylet = _Raylet()

    @property
    def name(self) -> str:
        """The host's name: by its raylet, or by its agent, which reports it late; empty where neither says it."""
        return self.raylet.node_manager_hostname or self.hostname


class _NodeData(Struct, frozen=True):
    summary: tuple[_Node, ...] = ()


class _Answer(Struct, Generic[Data], frozen=True):
    data: Data


def parse_state_api(body: bytes) -> tuple[ActorSnapshot, ...] | None:
    """Return the actors in an answer of the State API (node: its id), or None where it is none."""
    answer = decode(body, _Answer[_ActorData], strict=False, as_it_is=True)  # counts come as strings
    if answer is None:
        return None
    return tuple(
        _snapshot(actor, actor.node_id, death_cause(actor.death_cause or {})) for actor in answer.data.result.result
    )


def parse_logical(body: bytes, job: str = "") -> tuple[ActorSnapshot, ...] | None:
    """Return the actors in an answer of ``/logical/actors`` (node: its id), or None where it is none.

    Args:
        body: The answer.
        job: Only those of this job; empty: all.
    """
    answer = decode(body, _Answer[_LogicalData], strict=False, as_it_is=True)
    if answer is None:
        return None
    return tuple(
        _snapshot(actor, actor.address.node_id, _cause(actor.exit_detail or "") if actor.state == "DEAD" else "")
        for actor in answer.data.actors.values()
        if not job or actor.job_id == job
    )


def _snapshot(actor: _Actor | _LogicalActor, node: str | None, cause: str) -> ActorSnapshot:
    return ActorSnapshot(
        actor_id=plain(actor.actor_id),
        class_name=plain(actor.class_name or ""),
        name=plain(actor.name or actor.repr_name or ""),
        state=plain(actor.state or ""),
        node=plain(node or ""),
        pid=actor.pid or 0,
        restarts=actor.num_restarts or 0,
        death_cause=cause,
    )


def parse_nodes(body: bytes) -> dict[str, str]:
    """Return host names by node id from an answer of ``/nodes?view=summary``."""
    answer = decode(body, _Answer[_NodeData])
    return {node.raylet.node_id: node.name for node in answer.data.summary if node.name} if answer else {}


def death_cause(cause: Mapping[str, Any]) -> str:
    """Why an actor died, in one plain line: the error's message, or the last line of its traceback."""
    for context in cause.values():
        if isinstance(context, dict):
            text = context.get("error_message") or context.get("formatted_exception_string")
            if isinstance(text, str) and text.strip():
                return _cause(text)
    return ""


def _cause(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "Traceback" in text:
        lines = lines[-1:]
    short = " ".join(plain(" ".join(lines)).split())
    return short if len(short) <= CAUSE_LIMIT else short[: CAUSE_LIMIT - 1] + "…"


def with_hosts(actors: Iterable[ActorSnapshot], hosts: Mapping[str, str]) -> tuple[ActorSnapshot, ...]:
    """``actors`` with their nodes' host names for ids; what is left of an id where there is none."""
    return tuple(msgspec.structs.replace(actor, node=plain(hosts.get(actor.node, actor.node[:12]))) for actor in actors)


class ActorsReader:
    """Reads the actors of one attempt's Ray.

    Args:
        client: The relay of the cluster.
        clock: Monotonic seconds.

    Attributes:
        actors: What the dashboard last said.
        problem: Why it did not say more; empty where it did.
    """

    def __init__(self, client: RelayClient, clock: Callable[[], float] = time.monotonic) -> None:
        self.actors: tuple[ActorSnapshot, ...] = ()
        self.problem = ""
        self._client = client
        self._clock = clock
        self._hosts: dict[str, str] = {}
        self._nodes_asked_at: float | None = None

    def read(self, endpoint: Endpoint) -> None:
        """Ask the dashboard; where it does not answer well, what it said before stays, with the problem."""
        actors: list[ActorSnapshot] = []
        for job in [""] if endpoint.jobs is None else endpoint.jobs:
            found, problem = self._of_job(endpoint, job)
            if found is None:
                self.problem = problem or "The dashboard's answer cannot be understood."
                return
            actors += found
        self.problem = ""
        self._learn_hosts(endpoint, {actor.node for actor in actors})
        self.actors = with_hosts(actors, self._hosts)

    def _of_job(self, endpoint: Endpoint, job: str) -> tuple[tuple[ActorSnapshot, ...] | None, str]:
        """The actors of one of Ray's jobs, with no id all of them; None with the reason where it does not say them."""
        reply = get(self._client, endpoint, STATE_API + (OF_JOB + quote(job, safe="") if job else ""))
        if reply.status not in (404, 500, 503):
            return (parse_state_api(reply.body) if not reply.problem else None), reply.problem
        reply = get(self._client, endpoint, LOGICAL)  # the State API can be switched off, or overloaded
        return (parse_logical(reply.body, job) if not reply.problem else None), reply.problem

    def _learn_hosts(self, endpoint: Endpoint, nodes: set[str]) -> None:
        now = self._clock()
        waited = self._nodes_asked_at is None or now - self._nodes_asked_at >= NODES_EVERY_S
        if waited and nodes - self._hosts.keys() - {""}:
            self._nodes_asked_at = now
            self._hosts.update(parse_nodes(get(self._client, endpoint, NODES).body))
