"""The journal: every action, written and synced to disk before it is taken.

It is what makes a submission happen exactly once: an intent without an outcome is looked up, never sent again blindly.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from rltui.errors import RltuiError
from rltui.paths import ensure_private

if TYPE_CHECKING:
    from pathlib import Path


class Journal:
    """An append-only file of JSON lines in the user's state directory.

    Args:
        folder: The state directory; made private (0700) if missing.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal.jsonl"

    def write(self, action: str, phase: str, **details: Any) -> None:
        """Append one entry and wait until it is on disk.

        Args:
            action: ``submit``, ``cancel``, ``resubmit``.
            phase: ``intent`` before the action, then ``done``, ``failed`` or ``unknown``.
            **details: What it acts on: run, attempt, uuid.

        Raises:
            RltuiError: The disk is full or read-only; the action must not be taken then.
        """
        entry = {"time": time.time(), "action": action, "phase": phase, "pid": os.getpid(), **details}
        line = json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n"
        try:
            ensure_private(self.path.parent)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, line.encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            hint = "Free some space, or set RLTUI_STATE_DIR to a directory you can write to. Nothing was done."
            raise RltuiError(f"Cannot write the journal {self.path}: {error.strerror}.", hint) from error

    def entries(self) -> list[dict[str, Any]]:
        """Every whole entry, oldest first; a torn last line is left out."""
        try:
            lines = self.path.read_text("utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []
        return [entry for line in lines if isinstance(entry := _parse(line), dict)]


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
