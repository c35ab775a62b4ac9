"""Telling people what this rltui sees of a run, beside what the run's own processes tell: each event once."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from rltui.cluster.profile import Notify
from rltui.cluster.relay_types import RelayError
from rltui.errors import ClusterError
from rltui.onnode import rundir
from rltui.onnode.environment import ENV_FILE_VARIABLE
from rltui.onnode.tell_once import TOLD, WAIT_S, mark
from rltui.runs.code_snapshot import take_snapshot
from rltui.runs.directory import stage_code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rltui.cluster.cluster import Cluster
    from rltui.cluster.profile import EventKind, Profile
    from rltui.watch.snapshots import RunSummary

TIMEOUT_S = 2 * WAIT_S + 10.0
ENDED: tuple[str, ...] = ("finished", "failed", "cancelled", "lost")
TRAINING: tuple[str, ...] = ("training", "saving")


class Event(Struct, frozen=True, kw_only=True):
    """Something that happened to an attempt, worth telling people."""

    kind: EventKind
    run: RunSummary
    text: str = ""

    @property
    def title(self) -> str:
        """The run and what happened, in a line."""
        return f"{self.run.run_id}: {self.run.state if self.kind == 'ended' else self.kind}"

    def message(self) -> dict[str, Any]:
        """What ``rltui.onnode.notify`` tells."""
        where = f"attempt {self.run.attempt} on {self.run.cluster}"
        step = "" if self.run.stage.step is None else f", step {self.run.stage.step} of {self.run.stage.steps}"
        text = "\n".join(filter(None, (self.text, where + step)))
        about = {"kind": self.kind, "cluster": self.run.cluster, "run": self.run.run_id}
        return {**about, "title": self.title, "text": text, "time_s": time.time()}


class Told(Struct, frozen=True, kw_only=True):
    """What came of one channel."""

    channel: str
    ok: bool
    detail: str
    place: Literal["here", "cluster"] = "cluster"


def happened(before: Iterable[RunSummary], after: Iterable[RunSummary]) -> list[Event]:
    """What happened between two pictures of all runs, both of now: old rows of a cluster that is away tell nothing."""
    known = {run.run_id: run for run in before if not run.as_of}
    events = []
    for run in after:
        old = known.get(run.run_id)
        if old is None or run.as_of:
            continue
        is_new = run.attempt != old.attempt
        if run.state in ENDED and (is_new or old.state not in ENDED):
            events.append(Event(kind="ended", run=run, text=run.end.reason if run.end else run.scheduler_says))
        elif run.stage.stage in TRAINING and run.is_live and (is_new or old.stage.stage not in TRAINING):
            events.append(Event(kind="started", run=run))
    return events


def tell_event(cluster: Cluster, event: Event) -> list[Told]:
    """Tell ``event`` by all channels of the cluster's profile that nobody has told it by.

    The desktop is this machine's; everything else happens on the cluster, where the secrets and the site's mail are.

    Raises:
        ClusterError: The cluster is away.
    """
    settings, run = cluster.profile.notify.for_nodes(), event.run
    if not settings or event.kind not in settings["events"]:
        return []
    attempt = rundir.attempt_folder(run.path, run.attempt)
    results: list[Told] = []
    if settings.pop("desktop", False) and _take(cluster, mark(attempt, event.kind, "desktop")):
        results += _here({"events": settings["events"], "desktop": True}, event.message())
    code = str(Path(rundir.__file__).parents[2]) if cluster.profile.scheduler == "local" else f"{run.path}/code"
    return results + _there(cluster, code, settings, event.message(), attempt)


def test_channels(cluster: Cluster, profile: Profile) -> list[Told]:
    """Tell a test by every channel of ``profile``, whatever its events are.

    Raises:
        RltuiError: The cluster is away, or rltui's code cannot be put there.
    """
    settings = {**profile.notify.for_nodes(), "events": ["started"]}
    text = f"This is how runs of {profile.name} tell of themselves."
    message = {"kind": "started", "cluster": profile.name, "run": "", "title": "rltui: a test", "text": text}
    results: list[Told] = []
    if settings.pop("desktop", False):
        results += _here({**settings, **_none("webhook", "mail", "command"), "desktop": True}, message)
    if not any(settings.get(name) for name in ("webhook", "mail", "command")):
        return results
    local = cluster.profile.scheduler == "local"
    code = str(Path(rundir.__file__).parents[2])
    if not local:
        code = stage_code(cluster.client, cluster.run_root, take_snapshot())
    return results + _there(cluster, code, settings, message)


def terminal_of(profile: Profile | None, kind: EventKind) -> str:
    """What a terminal is sent for an event of this kind: nothing where its cluster is not to tell of it."""
    notify = profile.notify if profile else Notify()
    return notify.terminal if kind in notify.events else "off"


def _none(*names: str) -> dict[str, None]:
    return dict.fromkeys(names)


def _take(cluster: Cluster, path: str) -> bool:
    try:
        cluster.client.put(path, TOLD, exclusive=True)
    except RelayError as error:
        if error.kind == "exists":
            return False
        raise
    return True


def _here(settings: dict[str, Any], message: dict[str, Any]) -> list[Told]:
    from rltui.onnode.notify import tell

    return [
        Told(channel=one["channel"], ok=one["ok"], detail=one["detail"], place="here")
        for one in tell(settings, message, os.environ)
    ]


def _there(
    cluster: Cluster, code: str, settings: dict[str, Any], message: dict[str, Any], attempt: str = ""
) -> list[Told]:
    """Tell from the cluster: no secret leaves it."""
    argv = [cluster.python if cluster.profile.scheduler == "local" else "python3", "-m", "rltui.onnode.tell_once"]
    argv += ["--attempt", attempt] if attempt else []
    environment = {"PYTHONPATH": code}
    if cluster.profile.env_file:
        environment[ENV_FILE_VARIABLE] = cluster.profile.env_file
    given = json.dumps({"settings": settings, "message": message}).encode()
    done = cluster.client.run(argv, stdin=given, env=environment, timeout_s=TIMEOUT_S)
    if done.rc:
        raise ClusterError(f"{cluster.name} could not tell anybody: {done.err.strip()[-300:]}")
    return [Told(channel=one["channel"], ok=one["ok"], detail=one["detail"]) for one in json.loads(done.out)]
