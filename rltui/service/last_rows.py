"""The rows of a cluster as last seen, kept on this machine: what is shown while the cluster is away."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import msgspec
from msgspec import structs

from rltui.errors import RltuiError
from rltui.paths import ensure_private, run_root
from rltui.watch.snapshots import RunsSnapshot

MOST_ROWS = 500
"""Newest runs that are kept: enough to know the cluster of any run that somebody asks for."""

HERE = "local"
"""``rltui.cluster.profile.LOCAL``, whose import would cost the first frame 9 ms."""

REWRITE_S = 60.0
"""How old the time of unchanged rows may become on the disk: their age is shown while the cluster is away."""


class LastRows:
    """The rows of one cluster, in memory and in a file that a later rltui finds."""

    def __init__(self, folder: Path, cluster: str) -> None:
        self._cluster, self._path = cluster, folder / "runs" / f"{cluster}.json"
        self._last: RunsSnapshot | None = None
        self._written_at = 0.0

    def last(self) -> RunsSnapshot:
        """The rows last kept, with the time of it; none where nothing was ever kept."""
        if self._last is None:
            self._last = self._load()
        return self._last

    def has(self, run_id: str) -> bool:
        """Whether a run of this cluster with exactly this id was among them."""
        return any(run.run_id == run_id and not run.through for run in self.last().runs)

    def keep(self, snapshot: RunsSnapshot) -> None:
        """Keep ``snapshot``; a cache that cannot be written costs only later rows."""
        kept = structs.replace(snapshot, runs=snapshot.runs[:MOST_ROWS])
        is_news = self._last is None or kept.runs != self._last.runs or kept.taken_at - self._written_at > REWRITE_S
        self._last = kept
        if is_news:
            self._written_at = kept.taken_at
            with contextlib.suppress(OSError, RltuiError):
                _replace(self._path, msgspec.json.encode(kept))

    def _load(self) -> RunsSnapshot:
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=RunsSnapshot)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return RunsSnapshot()
        if self._cluster != HERE:
            return found
        # RLTUI_RUN_ROOT may name another folder by now, whose runs are others
        roots = (f"{run_root()}/", f"{run_root().resolve()}/")
        here = tuple(run for run in found.runs if not run.path or run.path.startswith(roots))
        return structs.replace(found, runs=here)


def last_of_all(folder: Path) -> RunsSnapshot:
    """The rows of every cluster as last kept, newest first, with the newest time of it; asks nobody."""
    kept = [LastRows(folder, path.stem).last() for path in (folder / "runs").glob("*.json")]
    rows = {(run.run_id, run.created_at): structs.replace(run, as_of=one.taken_at) for one in kept for run in one.runs}
    newest_first = sorted(rows.values(), key=lambda run: (run.created_at, run.run_id), reverse=True)
    return RunsSnapshot(runs=tuple(newest_first), taken_at=max((one.taken_at for one in kept), default=0.0))


def _replace(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=ensure_private(path.parent))
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise
