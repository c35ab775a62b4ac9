"""What Ray says of the tasks and actors of an attempt, for its evidence: which call nobody answers, and who is dead.

Asked once, on the node of the dashboard, with Ray's own token, and bounded: a dashboard that hangs with the run, or one
with very many tasks, costs the evidence neither its time nor its size.
"""

import os
import threading
from typing import Any, Dict, List, Mapping
from urllib.parse import quote

from rltui.onnode import rundir
from rltui.onnode.ask_http import ask
from rltui.onnode.server_notes import OF_JOB, STATE_KEYS, shortened

TASKS = "/api/v0/tasks?limit=%d&detail=1&filter_keys=state&filter_predicates=!%%3D&filter_values=FINISHED"
ACTORS = "/api/v0/actors?limit=%d&detail=1"
JOB = "/api/jobs/%s"
TASK_KEYS = (
    "task_id", "attempt_number", "name", "state", "type", "actor_id", "node_id", "worker_pid", "error_type",
    "error_message", "creation_time_ms", "start_time_ms",
)  # fmt: skip
"""What is kept of a task, and of an actor ``STATE_KEYS``; runtime environments may hold secrets."""

MOST = 500
MOST_BYTES = 8 << 20
ASK_S = 3.0
ALL_S = 10.0


def states(attempt: str, host: str) -> Dict[str, Any]:
    """Unfinished tasks and all actors of the attempt; empty on nodes without its dashboard.

    Args:
        attempt: The attempt's directory.
        host: This node's name in the names of files.
    """
    ray = rundir.read_json(os.path.join(attempt, rundir.RAY_ENDPOINT)) or {}
    dashboard, there = str(ray.get("dashboard") or ""), str(ray.get("host") or "")
    if not dashboard or (there and there.split(".")[0] != host.split(".")[0]):
        return {}
    found: Dict[str, Any] = {"problems": []}
    # a server that sends a byte now and then would keep any number of timeouts from passing
    asking = threading.Thread(target=_ask, args=(attempt, dashboard, ray, found), daemon=True)
    asking.start()
    asking.join(ALL_S)
    late = ["%s did not answer within %.0f s." % (dashboard, ALL_S)] if asking.is_alive() else []
    return {**dict(found), "problems": [*found["problems"], *late]}


def _ask(attempt: str, dashboard: str, ray: Dict[str, Any], found: Dict[str, Any]) -> None:
    token = str(ray.get("token") or "") or own_token(os.environ)
    job = "" if ray.get("host") else _job_of(attempt, dashboard, token)
    only = OF_JOB + quote(job) if job else ""
    for name, path, kept in (("tasks", TASKS, TASK_KEYS), ("actors", ACTORS, STATE_KEYS)):
        reply = ask(dashboard + path % MOST + only, token, ASK_S, MOST_BYTES)
        try:
            found[name] = _rows(reply.value["data"]["result"]["result"], kept)
        except (TypeError, KeyError, AttributeError):
            found["problems"].append(reply.problem or "%s says nothing of %s." % (dashboard, name))


def _rows(rows: List[Dict[str, Any]], kept: Any) -> List[Dict[str, Any]]:
    return [{key: shortened(row[key]) for key in kept if row.get(key) is not None} for row in rows[:MOST]]


def _job_of(attempt: str, dashboard: str, token: str) -> str:
    """Ray's own number of the attempt's job on a Ray that others use too; empty where it does not say."""
    uuid = str((rundir.read_json(os.path.join(attempt, rundir.JOB)) or {}).get("uuid"))
    value = ask(dashboard + JOB % quote(uuid), token, ASK_S, MOST_BYTES).value
    return str(value.get("job_id") or "") if isinstance(value, dict) else ""


def own_token(environment: Mapping[str, str]) -> str:
    """The token that a Ray asks for, found where Ray's own clients look for it; empty where it asks for none."""
    if environment.get("RAY_AUTH_MODE", "token") != "token":
        return ""
    if environment.get("RAY_AUTH_TOKEN"):
        return environment["RAY_AUTH_TOKEN"]
    home = environment.get("HOME") or os.path.expanduser("~")
    path = environment.get("RAY_AUTH_TOKEN_PATH") or os.path.join(home, ".ray", "auth_token")
    return rundir.read_tail(path, limit=1 << 14).strip()
