"""The run directory of a recording as it was at a moment, and the relay of the machine that it seems to lie on.

The moment's files lie in a private folder, so that all that reads a run (watching, searching, diagnosing) reads them
with the relay's own operations, in this process. Only those that read files are there, and only below that folder:
nothing can be started, signalled, written or asked through a recording, whatever is written in it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import FileChunk, FileRange, Hello, RelayError
from rltui.onnode.relay import carry_out
from rltui.service.as_of import run_times
from rltui.service.recording import Recording

READS = frozenset({"read", "tail", "collect", "list", "search", "records"})
NOT_HERE = "This is a recording: it shows what was, and nothing of it can be asked or changed."


class RecordedFiles:
    """The files of a recording in a folder, as of one moment; for one thread at a time."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.times = run_times(recording)
        self.now = self.times.begin
        self.root = Path(tempfile.mkdtemp(prefix="rltui-replay-"))
        self.path = self.root / recording.manifest.run_id
        self._shown: dict[str, bytes | int | None] = {}
        self._make_folders()
        self.show(self.now)

    def _make_folders(self) -> None:
        self.path.mkdir(mode=0o700)
        for name in self.times.files:
            (self.path / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def show(self, now: float) -> None:
        """Let the folder hold what the run's held at ``now``, epoch seconds."""
        self.now = now
        for name, file in self.times.files.items():
            wanted, shown = file.at(now), self._shown.get(name)
            if wanted != shown:
                self._write(self.path / name, wanted, shown, file.data)
                self._shown[name] = wanted

    @staticmethod
    def _write(path: Path, wanted: bytes | int | None, shown: bytes | int | None, data: bytes) -> None:
        if wanted is None:
            path.unlink()
        elif isinstance(wanted, bytes):
            # beside its place first, as the run wrote it: who reads meanwhile sees the old or the new one
            part = path.with_name(f".{path.name}")
            part.write_bytes(wanted)
            part.replace(path)
        elif isinstance(shown, int) and shown < wanted:
            with path.open("ab") as stream:
                stream.write(data[shown:wanted])
        else:
            path.write_bytes(data[:wanted])

    def close(self) -> None:
        """Take the folder away."""
        shutil.rmtree(self.root, ignore_errors=True)


class RecordedClient(RelayClient):
    """A relay that knows of a recording only.

    Args:
        files: The recording; whoever shows another moment holds ``lock`` meanwhile.
    """

    def __init__(self, files: RecordedFiles) -> None:
        self.lock = threading.RLock()
        self.trusted = None
        self._owners = {}
        self._files = files
        self._root = os.path.realpath(files.root)

    @property
    def place(self) -> str:
        """What messages call it."""
        return "the recording"

    def hello(self) -> Hello:
        """A host of its own, so that servers of the run are on another, and the recording's clock."""
        return Hello(1, "", "", "", 0, "", 0, self._files.now)

    def close(self) -> None:
        """Nothing was opened."""

    def _ask(
        self, op: str, fields: dict[str, Any], timeout_s: float | None = None, idempotent: bool = True
    ) -> dict[str, Any]:
        del timeout_s, idempotent
        if op == "alive":
            return {"alive": [self._is_alive()] * len(fields["processes"])}
        if op not in READS:
            raise RelayError("refused", NOT_HERE)
        self._confine(fields.get("root", fields.get("path", "")))
        with self.lock:
            answer = carry_out({"op": op, **fields})
        if not answer["ok"]:
            raise RelayError(str(answer["kind"]), str(answer["error"]))
        return {**answer, "time": self._files.now} if op == "collect" else answer

    def _is_alive(self) -> bool:
        """Whether the processes of the newest attempt ran; only asked while nothing has written their end."""
        return self._files.recording.manifest.is_live or self._files.now < self._files.times.end

    def _confine(self, path: str) -> None:
        """Refuse a path outside: what a recording holds may name any file of the machine that it is shown on."""
        found = os.path.realpath(path)
        if path.startswith("~") or (found != self._root and not found.startswith(self._root + os.sep)):
            raise RelayError("missing", f"It is not in the recording: {path}.")

    def _read_many(self, ranges: Sequence[FileRange]) -> tuple[FileChunk | RelayError, ...]:
        return tuple(self._read_one(one) for one in ranges)

    def _read_one(self, wanted: FileRange) -> FileChunk | RelayError:
        try:
            if wanted.offset is None:
                return self.tail(wanted.path, wanted.limit)
            return self.read(wanted.path, wanted.offset, wanted.limit)
        except RelayError as error:
            return error
