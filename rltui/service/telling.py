"""Telling people what this rltui sees of a run, beside what the run's own processes tell: each event once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from rltui.cluster.cluster import Cluster
from rltui.cluster.profile import EventKind, Notify, Profile
from rltui.cluster.relay_types import RelayError
from rltui.errors import ClusterError
from rltui.onnode import rundir
from rltui.onnode.environment import ENV_FILE_VARIABLE
from rltui.onnode.notify import tell
from rltui.onnode.tell_once import TOLD, WAIT_S, mark
from rltui.runs.code_snapshot import take_snapshot
from rltui.runs.directory import stage_code
from rltui.service.run_events import Event

TIMEOUT_S = 2 * WAIT_S + 10.0


class Told(Struct, frozen=True, kw_only=True):
    """What came of one channel."""

    channel: str
    ok: bool
    detail: str
    place: Literal["here", "cluster"] = "cluster"


def tell_event(cluster: Cluster, event: Event) -> list[Told]:
    """Tell ``event`` by all channels of the cluster's profile that nobody has told it by.

    The desktop is this machine's; everything else happens on the cluster, where the secrets and the site's mail are.

    Raises:
        RltuiError: The cluster is away, or rltui's code cannot be put there.
    """
    settings, run = cluster.profile.notify.for_nodes(), event.run
    if event.kind not in settings.get("events", ()):
        return []
    attempt, message = rundir.attempt_folder(run.path, run.attempt), event.message()
    here, there = _apart(settings)
    results = _here(here, message) if here and _take(cluster, mark(attempt, event.kind, "desktop")) else []
    return results + (_there(cluster, there, message, attempt) if there else [])


def try_channels(cluster: Cluster) -> list[Told]:
    """Tell a test by every channel of the cluster's profile, whatever its events are.

    Raises:
        RltuiError: The cluster is away, or rltui's code cannot be put there.
    """
    text = f"This is how runs of {cluster.name} tell of themselves."
    message = {"kind": "started", "cluster": cluster.name, "run": "", "title": "rltui: a test", "text": text}
    here, there = _apart({**cluster.profile.notify.for_nodes(), "events": ["started"]})
    results = _here(here, message) if here else []
    return results + (_there(cluster, there, message) if there else [])


def _apart(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings for what is told on this machine, and for what is told on the cluster; empty: nothing is."""
    events, desktop = {"events": settings["events"]}, settings.get("desktop", False)
    others = {name: value for name, value in settings.items() if name not in ("events", "desktop")}
    return ({**events, "desktop": True} if desktop else {}), ({**events, **others} if others else {})


def terminal_of(profile: Profile | None, kind: EventKind) -> str:
    """What a terminal is sent for an event of this kind: nothing where its cluster is not to tell of it."""
    notify = profile.notify if profile else Notify()
    return notify.terminal if kind in notify.events else "none"


def _take(cluster: Cluster, path: str) -> bool:
    try:
        cluster.client.put(path, TOLD, exclusive=True)
    except RelayError as error:
        if error.kind == "exists":
            return False
        raise
    return True


def _here(settings: dict[str, Any], message: dict[str, Any]) -> list[Told]:
    return [msgspec.convert({**one, "place": "here"}, Told) for one in tell(settings, message, os.environ)]


def _there(cluster: Cluster, settings: dict[str, Any], message: dict[str, Any], attempt: str = "") -> list[Told]:
    """Tell from the cluster, in the words of this rltui: no secret leaves it."""
    if cluster.profile.scheduler == "local":
        python, code = cluster.python, str(Path(rundir.__file__).parents[2])
    else:
        python, code = "python3", stage_code(cluster.client, cluster.run_root, take_snapshot())
    argv = [python, "-m", "rltui.onnode.tell_once", *(["--attempt", attempt] if attempt else [])]
    environment = {"PYTHONPATH": code}
    if cluster.profile.env_file:
        environment[ENV_FILE_VARIABLE] = cluster.profile.env_file
    given = json.dumps({"settings": settings, "message": message}).encode()
    done = cluster.client.run(argv, stdin=given, env=environment, timeout_s=TIMEOUT_S)
    if done.rc:
        raise ClusterError(f"{cluster.name} could not tell anybody: {done.err.strip()[-300:]}")
    return msgspec.json.decode(done.out, type=list[Told])
