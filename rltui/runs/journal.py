"""The journal: every action, written and synced to disk before it is taken.

It is what makes a submission happen exactly once: an intent without an outcome is looked up, never sent again blindly.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rltui.errors import ClusterError, RltuiError
from rltui.onnode import processes, rundir
from rltui.paths import ensure_private

if TYPE_CHECKING:
    from pathlib import Path


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

    @contextmanager
    def around(
        self, action: str, failed: str = "failed", intended: Mapping[str, Any] = NOTHING, **details: Any
    ) -> Iterator[Outcome]:
        """Write an action's intent, let the block take it, and write what came of it.

        Args:
            action: As in ``write``.
            failed: Phase of an error that is no :class:`ClusterError`; after one of these nobody knows.
            intended: Details of the intent alone.
            **details: As in ``write``, in both entries.

        Raises:
            RltuiError: The block's own, or as ``write``.
        """
        self.write(action, "intent", **details, **intended)
        outcome = Outcome()
        try:
            yield outcome
        except RltuiError as error:
            phase = "unknown" if isinstance(error, ClusterError) else failed
            self.write(action, phase, **details, reason=error.message[:500])
            raise
        self.write(action, outcome.phase, **details)

    def entries(self) -> list[dict[str, Any]]:
        """Every whole entry, oldest first; a torn line is left out. Only what is new is read from the disk."""
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
        os.write(descriptor, rundir.line_start(descriptor) + line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
