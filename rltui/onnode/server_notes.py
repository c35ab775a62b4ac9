"""Notes what Ray's dashboard and the trainer's status endpoint say, for those who are on other nodes.

Both listen on the loopback of the head node only, because whoever reaches Ray's dashboard can run code; rltui's relay
is on the login node. So this process, beside them, asks for their answers and leaves them in two files of the attempt's
directory: ``actors.json`` and ``status-now.json``. It ends when its standard input does, after one last look, so that
the files tell why actors died after their Ray is gone.
"""

import argparse
import contextlib
import os
import select
import signal
import sys
import time
from typing import Any, Dict, FrozenSet, List, Optional

if __package__ in (None, ""):  # started by its path
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from rltui.onnode import rundir
from rltui.onnode.ask_http import ask
from rltui.onnode.node_network import host

STATE_API = "/api/v0/actors?detail=1&limit=1000"
OF_JOB = "&filter_keys=job_id&filter_predicates=%3D&filter_values="
"""Before the id of one of Ray's jobs, behind a path of the State API: what is of that job only."""
LOGICAL = "/logical/actors"
NODES = "/nodes?view=summary"
STATUS = "/api/status"

EVERY_S = 2.5
NODES_EVERY_S = 30.0
"""Names of nodes that are not known are asked for this often: Ray may never tell those of nodes that are gone."""
KEEP_S = 10.0
"""What has not changed is written again this often: its time tells that somebody still looks."""

SHARE, LONGEST_PAUSE_S = 0.05, 15.0
"""Of the time, a server may spend this share on answers: one that is slow, with very many actors, is asked less."""

TIMEOUT_S = 2.0

STATE_KEYS = ("actor_id", "class_name", "name", "repr_name", "state", "node_id", "pid", "num_restarts", "death_cause")
LOGICAL_KEYS = ("actorId", "className", "reprName", "numRestarts", "exitDetail", "address", "jobId")
KEPT = frozenset((*STATE_KEYS, *LOGICAL_KEYS))
"""What is noted of an actor; the rest is long, and its runtime environment may hold secrets."""

LONGEST_TEXT = 4000
ALL_TEXTS = 1 << 19
"""Of all actors together: readers take 1 MiB of a note, and a thousand actors may die of one error."""
END_OF_ALL = frozenset({"RAY_KILL", "OWNER_DIED", "REF_DELETED", "OUT_OF_SCOPE"})
"""Reasons of deaths that, when the trainer has ended, only say that: it ends its actors, or they end without it."""


class Note:
    """One of the files: written where what it says has changed, and now and then."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: Dict[str, Any] = {}
        self._seen: Any = None
        self._written_at = 0.0

    def write(self, said: Dict[str, Any], problem: str, seen: Any = None) -> None:
        """Note what a server ``said``; with a ``problem``, what it said before stays.

        Args:
            said: Keys of the file.
            problem: Why it did not say it; empty where it did.
            seen: What counts as a change; None: anything.
        """
        if not problem:
            self._known = said
        fresh = (problem, self._known if seen is None else seen)
        if fresh == self._seen and time.monotonic() - self._written_at < KEEP_S:
            return
        self._seen, self._written_at = fresh, time.monotonic()
        # a disk that is full now may have room for the next one
        with contextlib.suppress(OSError):
            at = int(time.time() * 100) / 100  # cut, not rounded: a note from the future would have a negative age
            note = {"schema": rundir.SCHEMA, "at": at, "problem": problem}
            rundir.write_json(self._path, {**note, **self._known})


class ServerNotes:
    """Asks the servers of one attempt that are on this node.

    Args:
        attempt: The attempt's directory, with ``ray.json`` and later ``status.json`` in it.
    """

    def __init__(self, attempt: str) -> None:
        self._attempt = attempt
        self._host = host().split(".")[0]
        self._actors = Note(os.path.join(attempt, rundir.ACTORS))
        self._status = Note(os.path.join(attempt, rundir.STATUS_NOW))
        self._rows: Dict[str, Dict[str, Any]] = {}
        self._nodes: Any = None
        self._hosts_asked_at = -NODES_EVERY_S

    def look(self, last: bool = False) -> None:
        """Ask all servers once; the ``last`` time, deaths that the end itself brought are left out."""
        ray = rundir.read_json(os.path.join(self._attempt, rundir.RAY_ENDPOINT)) or {}
        if ray.get("host") and ray.get("dashboard"):  # without a host it is a standing Ray, beside rltui's relay
            self._look_at_actors(str(ray["dashboard"]), str(ray.get("token", "")), last)
        status = rundir.read_json(os.path.join(self._attempt, rundir.STATUS_ENDPOINT)) or {}
        if status.get("url") and str(status.get("host") or self._host).split(".")[0] == self._host:
            self._look_at_status(str(status["url"]), str(status.get("token", "")))

    def _look_at_actors(self, dashboard: str, token: str, last: bool) -> None:
        reply = ask(dashboard + STATE_API, token, TIMEOUT_S)
        kind = "state"
        if reply.status in (404, 500, 503):  # the State API can be switched off, or overloaded
            kind, reply = "logical", ask(dashboard + LOGICAL, token, TIMEOUT_S)
        rows = rows_of(kind, reply.value)
        problem = reply.problem or ("" if rows is not None else "The dashboard's answer cannot be understood.")
        if rows is not None:
            self._rows = before_the_end(self._rows, rows) if last else rows
            self._learn_hosts(dashboard, token)
        self._actors.write({kind: answer_of(kind, self._rows), "nodes": self._nodes}, problem)

    def _learn_hosts(self, dashboard: str, token: str) -> None:
        nodes = frozenset(node_of(row) for row in self._rows.values()) - {""}
        if nodes - nodes_named(self._nodes) and time.monotonic() - self._hosts_asked_at >= NODES_EVERY_S:
            reply = ask(dashboard + NODES, token, TIMEOUT_S)
            self._nodes = slim_nodes(reply.value) or self._nodes
            self._hosts_asked_at = time.monotonic()

    def _look_at_status(self, url: str, token: str) -> None:
        reply = ask(url.rstrip("/") + STATUS, token, TIMEOUT_S)
        said = reply.value if isinstance(reply.value, dict) else {}
        seen = {name: value for name, value in said.items() if name != "last_updated"}
        self._status.write({"status": said}, reply.problem, seen)


def rows_of(kind: str, value: Any) -> Optional[Dict[str, Dict[str, Any]]]:
    """The actors by id in an answer of the State API (``state``) or of ``/logical/actors``; None where it is none."""
    try:
        found: Any = value["data"]["result"]["result"] if kind == "state" else list(value["data"]["actors"].values())
        most = min(LONGEST_TEXT, ALL_TEXTS // max(1, len(found)))
        return {str(row.get("actor_id") or row.get("actorId")): slim(row, most) for row in found}
    except (TypeError, KeyError, AttributeError):
        return None


def answer_of(kind: str, rows: Dict[str, Dict[str, Any]]) -> Dict[str, Any]:
    """The answer that has ``rows``, as the server would give it."""
    if kind == "state":
        return {"data": {"result": {"result": list(rows.values())}}}
    return {"data": {"actors": rows}}


def slim(row: Dict[str, Any], most: int = LONGEST_TEXT) -> Dict[str, Any]:
    """What is noted of an actor, its texts with at most ``most`` characters."""
    return {name: shortened(value, most) for name, value in row.items() if name in KEPT}


def shortened(value: Any, most: int = LONGEST_TEXT) -> Any:
    """``value`` with long texts cut in the middle: a traceback begins with its kind and ends with its cause."""
    if isinstance(value, dict):
        return {name: shortened(one, most) for name, one in value.items()}
    if isinstance(value, str) and len(value) > most:
        return value[: most // 4] + "\n…\n" + value[-most // 2 :]
    return value


def node_of(row: Dict[str, Any]) -> str:
    """Id of the node of an actor's row, which versions of Ray give in different places."""
    address = row.get("address")
    return str(row.get("node_id") or (address.get("nodeId") if isinstance(address, dict) else "") or "")


def slim_nodes(value: Any) -> Any:
    """Host names by node id in an answer of ``/nodes``, in its own form; None where it is none.

    ``hostname`` is what a node's agent reports, some time after its actors have begun; the raylet's is there at once.
    """
    try:
        nodes: List[Any] = value["data"]["summary"]
        raylets = [one["raylet"] for one in nodes]
        named = [{name: one[name] for name in ("nodeId", "nodeManagerHostname")} for one in raylets]
    except (TypeError, KeyError):
        return None
    return {"data": {"summary": [{"raylet": raylet} for raylet in named]}}


def nodes_named(nodes: Any) -> FrozenSet[str]:
    """The ids of the nodes in what ``slim_nodes`` gave."""
    return frozenset(one["raylet"]["nodeId"] for one in nodes["data"]["summary"]) if nodes else frozenset()


def before_the_end(before: Dict[str, Dict[str, Any]], after: Dict[str, Dict[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """``after``, but with the rows of ``before`` for actors that only died because the trainer ended."""
    return {one: before[one] if one in before and died_with_the_rest(row) else row for one, row in after.items()}


def died_with_the_rest(row: Dict[str, Any]) -> bool:
    """Whether an actor's death says nothing but that its owner is gone."""
    causes = row.get("death_cause")
    found = causes.values() if isinstance(causes, dict) else ()
    return any(isinstance(one, dict) and one.get("reason") in END_OF_ALL for one in found)


def note_until_end(attempt: str, stop: int) -> None:
    """Look again and again until the descriptor ``stop`` ends or the directory is gone, and once more then."""
    notes, told = ServerNotes(attempt), False
    while not told and not rundir.is_gone(attempt):
        began = time.monotonic()
        notes.look()
        took = time.monotonic() - began
        pause = min(LONGEST_PAUSE_S, max(EVERY_S - took, took / SHARE))
        told = bool(select.select([stop], [], [], pause)[0])
    if not rundir.is_gone(attempt):
        notes.look(last=True)


def main() -> int:
    """Entry point: ``python -m rltui.onnode.server_notes --attempt DIR``, with a pipe from the process to end with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempt", required=True, help="directory of the attempt")
    options = parser.parse_args()
    rundir.keep_private(options.attempt)
    # Slurm tells everybody at once to end; the end of the pipe is what tells this one
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    note_until_end(options.attempt, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
