"""The journal: every action, written and synced to disk before it is taken.

It is what makes a submission happen exactly once: an intent without an outcome is looked up, never sent again blindly.
What became of a submission, by its newest phase:

intent      about to be made: nothing has been handed to a scheduler
submitting  about to be handed over: from here on only a look at the cluster can tell
done        the scheduler gave it an id
failed      the scheduler refused it, or it was never handed over
unknown     the answer was lost
adopted     looked up and found: as good as done
absent      looked up for long enough and not found; whether to submit again is the user's decision
superseded  absent, and barred from ever starting: a new attempt took its place, or its folder is gone
recorded    what the journal knows is now on the cluster's disk too
"""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from rltui.errors import ClusterError, RltuiError
from rltui.onnode import processes, rundir
from rltui.paths import ensure_private

NOTHING: Mapping[str, Any] = {}


class Outcome:
    """What came of an action that ended without an error; where nothing was done after all, the block says so."""

    phase = "done"


class Journal:
    """An append-only file of JSON lines in the user's state directory.

    Several rltui may write to it at once, on several machines that share the directory.

    Args:
        folder: The state directory; made private (0700) if missing.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal.jsonl"
        self._writer = {
            "pid": os.getpid(),
            "started": processes.start_time(os.getpid()) or "",
            "host": socket.gethostname(),
        }
        self._reading = threading.Lock()
        self._read_to = 0
        self._entries: list[dict[str, Any]] = []

    def write(self, action: str, phase: str, **details: Any) -> None:
        """Append one entry and wait until it is on disk.

        Args:
            action: ``submit``, ``cancel``, ``resubmit`` …
            phase: ``intent`` before the action, then its outcome: ``done``, ``failed``, ``unknown`` …
            **details: What it acts on: run, attempt, uuid.

        Raises:
            RltuiError: The disk is full or read-only; the action must not be taken then.
        """
        entry = {"time": time.time(), "action": action, "phase": phase, **self._writer, **details}
        line = json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n"
        try:
            ensure_private(self.path.parent)
            _append(self.path, line.encode("utf-8", "backslashreplace"))
        except OSError as error:
            hint = "Free some space, or set RLTUI_STATE_DIR to a directory you can write to. Nothing was done."
            raise RltuiError(f"Cannot write the journal {self.path}: {error.strerror}.", hint) from error

    def note(self, action: str, phase: str, **details: Any) -> None:
        """Write what came of an action, as ``write`` does, where the disk takes it: a full one undoes no action."""
        with suppress(RltuiError):
            self.write(action, phase, **details)

    @contextmanager
    def around(
        self, action: str, failed: str = "failed", intended: Mapping[str, Any] = NOTHING, **details: Any
    ) -> Iterator[Outcome]:
        """Write an action's intent, let the block take it, and write what came of it, as far as the disk takes that.

        Args:
            action: As in ``write``.
            failed: Phase of an error that is no :class:`ClusterError`; after one of these nobody knows.
            intended: Details of the intent alone.
            **details: As in ``write``, in both entries.

        Raises:
            RltuiError: The block's own, or the intent cannot be written: the block was not entered then.
        """
        self.write(action, "intent", **details, **intended)
        outcome = Outcome()
        try:
            yield outcome
        except RltuiError as error:
            phase = "unknown" if isinstance(error, ClusterError) else failed
            self.note(action, phase, **details, reason=error.message[:500])
            raise
        self.note(action, outcome.phase, **details)

    def entries(self) -> list[dict[str, Any]]:
        """Every whole entry, oldest first; a torn line is left out. Only what is new is read from the disk."""
        with self._reading:  # the cockpit's list and its actions ask from threads of their own
            try:
                with self.path.open("rb") as stream:
                    stream.seek(self._read_to)
                    data = stream.read()
            except FileNotFoundError:
                return []
            whole = data.rfind(b"\n") + 1
            self._read_to += whole
            found = (_parse(line) for line in data[:whole].split(b"\n") if line)
            self._entries += [entry for entry in found if isinstance(entry, dict)]
            return self._entries


def _append(path: Path, line: bytes) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        line = rundir.line_start(descriptor) + line
        if os.write(descriptor, line) < len(line):  # the last free block took the beginning, which is no error
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


class JournalAction(Struct, frozen=True, kw_only=True):
    """One action that rltui took, or began.

    Attributes:
        action: ``submit``, ``cancel``, ``resubmit``, ``replace``, ``hands-off`` …
        outcome: The last that is known: ``done``, ``failed``, ``unknown`` …; ``intent`` where nothing came after it.
        began_at: Epoch seconds.
        took_s: Seconds until the outcome; None where there is none.
        words: What it changed: ``key.path=value``, ``--exclude NODE``, ``on`` or ``off``; the command of a shell.
        by: pid@host of the rltui that did it.
    """

    action: str
    outcome: str
    began_at: float
    took_s: float | None = None
    run: str = ""
    attempt: int = 0
    cluster: str = ""
    job: str = ""
    words: tuple[str, ...] = ()
    reason: str = ""
    by: str = ""


def actions(entries: Iterable[Mapping[str, Any]]) -> list[JournalAction]:
    """``entries``, oldest first, as actions in the order of their beginning; an entry that is none is left out."""
    groups: list[list[Mapping[str, Any]]] = []
    open_groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for entry in entries:
        if not isinstance(entry.get("time"), (int, float)) or "action" not in entry:
            continue
        about = tuple(str(entry.get(name, "")) for name in ("action", "run", "attempt", "cluster"))
        group = open_groups.get(about)
        if group is None or entry.get("phase") == "intent" or entry["action"] == "hands-off":
            group = open_groups[about] = _replaced(groups, entry)
        group.append(entry)
    return [_action(group) for group in groups]


_WHICH = ("run", "cluster")


def _replaced(groups: list[list[Mapping[str, Any]]], entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The group that ``entry`` begins; a resubmission belongs to the change of a live run that it carries out."""
    if entry["action"] == "resubmit":
        own = (group for group in reversed(groups) if all(group[-1].get(name) == entry.get(name) for name in _WHICH))
        before: list[Mapping[str, Any]] | None = next((group for group in own if group[-1]["action"] != "cancel"), None)
        if before is not None and before[-1]["action"] == "replace":
            return before
    fresh: list[Mapping[str, Any]] = []
    groups.append(fresh)
    return fresh


def _action(entries: list[Mapping[str, Any]]) -> JournalAction:
    first, last = entries[0], entries[-1]
    known = {name: value for entry in entries for name, value in entry.items() if value not in ("", None)}
    outcome = next((entry for entry in reversed(entries) if entry.get("phase") != "recorded"), last)
    is_over = outcome.get("phase") not in ("intent", "submitting")
    attempt = known.get("attempt", 0)
    return JournalAction(
        action=str(last["action"]),
        outcome=str(outcome.get("phase", "")),
        began_at=float(first["time"]),
        took_s=max(0.0, float(outcome["time"]) - float(first["time"])) if is_over else None,
        run=str(known.get("run", "")),
        attempt=attempt if isinstance(attempt, int) else 0,
        cluster=str(known.get("cluster", "")),
        job=str(known.get("job", "")),
        words=_words(known),
        reason=str(outcome.get("reason", "")),
        by=f"{first.get('pid', '?')}@{first.get('host', '?')}",
    )


def _words(known: Mapping[str, Any]) -> tuple[str, ...]:
    listed = [(name, known.get(name)) for name in ("overrides", "exclude")]
    overrides, exclude = ([str(word) for word in value] if isinstance(value, list) else [] for _, value in listed)
    switched = ["on" if known["on"] else "off"] if "on" in known else []
    command = [str(known["command"])] if "command" in known else []
    return (*command, *overrides, *(f"--exclude {node}" for node in exclude), *switched)


SUBMISSIONS = frozenset({"submit", "resubmit"})
UNDECIDED = frozenset({"intent", "submitting", "unknown", "absent"})
NEVER_SENT = "not submitted: rltui was ended before it came to that"
"""How an attempt ended that was made and never handed to a scheduler."""
LOOK_UP_FOR_S = 60.0
"""How long a submission is looked for before it counts as absent: accounting lags, controllers restart."""


class Submission(Struct, frozen=True, kw_only=True):
    """One submission as the journal tells it."""

    uuid: str
    action: str = "submit"
    phase: str = "intent"
    run: str = ""
    attempt: int = 0
    cluster: str = ""
    path: str = ""
    """The attempt's directory on the cluster."""
    intended_at: float = 0.0
    sent_at: float = 0.0
    """When it was about to be handed to the scheduler; 0: it certainly was not."""
    job: str = ""
    reason: str = ""
    recorded: bool = True
    """Whether the attempt's directory says what the journal says."""
    pid: int = 0
    started: str = ""
    host: str = ""
    """Who wrote the last entry: pid, its start time, its host."""

    @property
    def is_undecided(self) -> bool:
        """Whether somebody must look at the cluster to know what became of it."""
        return self.phase in UNDECIDED

    @property
    def needs_care(self) -> bool:
        """Whether anything is left to do for it."""
        return self.is_undecided or not self.recorded


def fold_submissions(entries: Iterable[Mapping[str, Any]]) -> dict[str, Submission]:
    """Return every submission in ``entries`` by its uuid, oldest first; entries that make no sense are passed over."""
    found: dict[str, Submission] = {}
    for entry in entries:
        uuid, phase = entry.get("uuid"), entry.get("phase")
        if entry.get("action") in SUBMISSIONS and isinstance(uuid, str) and isinstance(phase, str):
            found[uuid] = _advanced(found.get(uuid) or Submission(uuid=uuid), phase, entry)
    return found


def _advanced(before: Submission, phase: str, entry: Mapping[str, Any]) -> Submission:
    at = _number(entry.get("time"))
    texts = {
        name: value
        for name in ("action", "run", "cluster", "path", "job", "reason", "started", "host")
        if isinstance(value := entry.get(name), str)
    }
    after = structs.replace(before, **texts, pid=int(_number(entry.get("pid"))))
    if isinstance(entry.get("attempt"), int):
        after = structs.replace(after, attempt=entry["attempt"])
    if phase == "recorded":
        return structs.replace(after, recorded=True)
    return structs.replace(
        after,
        phase=phase,
        intended_at=at if phase == "intent" else before.intended_at,
        sent_at=at if phase == "submitting" else before.sent_at,
        recorded=entry.get("recorded") is not False,
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
