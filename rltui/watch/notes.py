"""What ``onnode/server_notes.py`` noted on a run's head node, for an rltui whose relay is on another node."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Struct

from rltui.cluster.relay_client import RelayClient
from rltui.onnode import rundir
from rltui.watch.actors import parse_logical, parse_nodes, parse_state_api, with_hosts
from rltui.watch.lines import parse_object
from rltui.watch.owners import ActorSnapshot
from rltui.watch.small_files import SmallFiles
from rltui.watch.snapshots import StatusSnapshot
from rltui.watch.status import parse_status
from rltui.watch.text import plain

LIMIT_BYTES = 1 << 20
DAMAGED = "The note of what the dashboard said cannot be understood."


class ActorsNote(Struct, frozen=True):
    """What ``actors.json`` says: Ray's actors as the head node saw them."""

    actors: tuple[ActorSnapshot, ...] = ()
    problem: str = ""
    at: float = 0.0
    """When it was written, epoch seconds; 0: there is none."""


def parse_actors_note(text: str) -> ActorsNote:
    """Return what ``actors.json`` says; the answers in it are in the form that the dashboard gave them."""
    note = parse_object(text)
    if note is None:
        return ActorsNote(problem=DAMAGED)
    found = parse_state_api(_body(note.get("state"))) or parse_logical(_body(note.get("logical"))) or ()
    problem = plain(str(note.get("problem") or ""))
    return ActorsNote(with_hosts(found, parse_nodes(_body(note.get("nodes")))), problem, _time(note))


def parse_status_note(text: str) -> StatusSnapshot:
    """Return what ``status-now.json`` says: the trainer's status as the head node read it."""
    note = parse_object(text) or {}
    status = parse_status(_body(note.get("status")))
    problem = plain(str(note.get("problem") or "")) or status.problem
    return msgspec.structs.replace(status, problem=problem, noted_at=_time(note))


def _body(answer: Any) -> bytes:
    return json.dumps(answer).encode()


def _time(note: dict[str, Any]) -> float:
    at = note.get("at")
    return float(at) if isinstance(at, (int, float)) else 0.0


class NotesReader:
    """Reads the server notes of one attempt.

    Attributes:
        actors: The actors; empty until there is a note.
        status: The status; empty until there is a note.
    """

    def __init__(self, client: RelayClient, attempt_path: str) -> None:
        self.actors = ActorsNote()
        self.status = StatusSnapshot()
        self._files = SmallFiles(client, attempt_path, (rundir.ACTORS, rundir.STATUS_NOW), LIMIT_BYTES)
        self._texts: dict[str, str] = {}

    def read(self) -> None:
        """Read the notes anew, and parse those whose text has changed."""
        texts, before = dict(self._files.read()), self._texts
        self._texts = texts
        if rundir.ACTORS in texts and texts[rundir.ACTORS] != before.get(rundir.ACTORS):
            self.actors = parse_actors_note(texts[rundir.ACTORS])
        if rundir.STATUS_NOW in texts and texts[rundir.STATUS_NOW] != before.get(rundir.STATUS_NOW):
            self.status = parse_status_note(texts[rundir.STATUS_NOW])
