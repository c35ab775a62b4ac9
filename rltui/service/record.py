"""Recording a run: all attempts as their files tell of them, and while it is watched what leaves no history there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import structs

from rltui.cluster.relay_client import RelayClient
from rltui.errors import ClusterError
from rltui.onnode import rundir, server_notes
from rltui.runs.directory import attempt_numbers
from rltui.service.context import Context
from rltui.service.hands_off_switch import is_over
from rltui.service.recording import Packer, Saved
from rltui.watch.attempt_logs import is_log
from rltui.watch.endpoint import get
from rltui.watch.lines import parse_object
from rltui.watch.run_facts import AttemptFacts
from rltui.watch.run_watcher import RunWatcher
from rltui.watch.small_files import SmallFiles
from rltui.watch.snapshots import RunSummary

EVERY_S = 2.0
NOTED = (rundir.STAGE, rundir.ACTORS, rundir.STATUS_NOW, rundir.MEMORY)
"""Files of an attempt that are written again and again, and keep nothing of what they said."""


def record(context: Context, run: RunSummary, target: Path, *, follow: bool = False) -> Saved:
    """Write a recording of ``run`` into ``target``.

    Args:
        context: The run's cluster.
        run: The run.
        target: The file to make.
        follow: Watch it until it ends, or until it is interrupted.

    Raises:
        UsageError: The file cannot be written.
    """
    client = context.cluster.client
    changes: list[dict[str, Any]] = []
    if follow and run.is_live:
        run = _watched(context, run, changes)
    packer = Packer(client, run)
    packer.add_run()
    for number in reversed(attempt_numbers(client, run.path)):
        packer.add_attempt(number)
    return packer.save(target, changes)


def _watched(context: Context, run: RunSummary, changes: list[dict[str, Any]]) -> RunSummary:
    """Note what changes until the run ends or somebody interrupts; returns the run as it is then."""
    client = context.cluster.client
    watcher, notes = RunWatcher(client, run.path), Notes(client, run.path)
    try:
        while True:
            picture = watcher.snapshot()
            with suppress(ClusterError):  # it is away for a while: what was noted before is not to go with it
                changes += notes.look(watcher.newest, picture.taken_at)
            run = structs.replace(run, state=picture.summary.state, attempt=picture.summary.attempt)
            if not run.is_live:
                with suppress(ClusterError):  # of a job that waits, or waits again, only the scheduler knows
                    run = context.find(run.run_id)
                    if is_over(context, run):
                        break
            time.sleep(EVERY_S)
    except KeyboardInterrupt:  # what was seen until now is the recording
        pass
    return run


class Notes:
    """What is new in the files of a run that keep no history, and what its servers say."""

    def __init__(self, client: RelayClient, run_path: str) -> None:
        self._client = client
        self._path = run_path
        names = [rundir.HANDS_OFF, *(f"{rundir.ATTEMPTS}/*/{name}" for name in NOTED)]
        self._files = SmallFiles(client, run_path, names)
        self._seen: dict[str, object] = {}
        self._host = client.hello().host

    def look(self, attempt: AttemptFacts, now: float) -> Iterator[dict[str, Any]]:
        """What has changed since the last look, as lines of ``changes.jsonl``."""
        folder = rundir.attempt_folder("", attempt.number)[1:]
        said = dict(self._files.read())
        said |= {f"{folder}/{name}": text for name, text in self._servers(attempt, now)}
        for path, text in said.items():
            note = parse_object(text) or {}
            if self._is_new(path, {key: value for key, value in note.items() if key != "at"}):
                yield {"t": now, "path": path, "text": text}
        for entry in self._client.list(f"{self._path}/{folder}") if attempt.number else ():
            if is_log(entry.name) and self._is_new(f"{folder}/{entry.name}", entry.size):
                yield {"t": now, "path": f"{folder}/{entry.name}", "size": entry.size}

    def _is_new(self, path: str, what: object) -> bool:
        known, self._seen[path] = self._seen.get(path), what
        return known != what

    def _servers(self, attempt: AttemptFacts, now: float) -> Iterator[tuple[str, str]]:
        """What servers beside the relay say, in the form in which others are noted on their node."""
        head: dict[str, Any] = {"schema": rundir.SCHEMA, "at": now, "problem": ""}
        if attempt.end is not None:
            return
        if attempt.dashboard is not None and attempt.dashboard.is_on(self._host):
            reply = get(self._client, attempt.dashboard, server_notes.STATE_API)
            rows = server_notes.rows_of("state", _value(reply.body))
            nodes = server_notes.slim_nodes(_value(get(self._client, attempt.dashboard, server_notes.NODES).body))
            if rows is not None:
                answer = server_notes.answer_of("state", rows)
                yield rundir.ACTORS, json.dumps({**head, "state": answer, "nodes": nodes})
        if attempt.status is not None and attempt.status.is_on(self._host):
            said = _value(get(self._client, attempt.status, server_notes.STATUS).body)
            if isinstance(said, dict):
                yield rundir.STATUS_NOW, json.dumps({**head, "status": said})


def _value(body: bytes) -> object:
    try:
        value: object = json.loads(body)
    except ValueError:
        return None
    return value


def default_name(run_id: str) -> str:
    """The file's name where the user gives none."""
    return f"{run_id}-recording.tar.gz"


def in_words(saved: Saved) -> Sequence[str]:
    """What to say of a recording that is made."""
    cut = [f"only the ends are in it, as these are long: {', '.join(saved.cut[:8])}"] if saved.cut else []
    return [saved.path, *cut, f"{len(saved.files)} files; secrets are masked, read it before you share it"]
