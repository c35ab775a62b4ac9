"""The small files below a directory, kept: only those that changed are sent again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import SmallFile

LIMIT_BYTES = 1 << 18
OVERLAP_S = 5.0
"""Files changed this little before the newest are sent again: clocks of file systems tick in up to 2 s."""


class SmallFiles:
    """Reads small text files below ``root`` again and again.

    Args:
        client: The relay of the cluster.
        root: The directory.
        names: Patterns relative to it.
        limit_bytes: Bytes of each file that are read, at most 1 MiB.

    Attributes:
        taken_at: When they were last read, by the clock of their disk.
        is_disk_full: Whether that disk had no room left then.
    """

    def __init__(self, client: RelayClient, root: str, names: Sequence[str], limit_bytes: int = LIMIT_BYTES) -> None:
        self.taken_at = 0.0
        self.is_disk_full = False
        self._client = client
        self._root = root
        self._names = tuple(names)
        self._limit_bytes = limit_bytes
        self._kept: dict[str, SmallFile] = {}

    def read(self) -> Mapping[str, str]:
        """Return their texts by path below the root."""
        since = max((file.mtime for file in self._kept.values()), default=0.0) - OVERLAP_S
        files = self._collect(max(0.0, since))
        if files is None:
            files = self._collect(0.0) or {}
        self._kept = files
        return {path: file.text or "" for path, file in files.items()}

    def owner(self, path: str) -> str:
        """Whose the file ``path`` below the root was when it was read; empty: the user's own."""
        file = self._kept.get(path)
        return file.owner if file is not None else ""

    def _collect(self, since: float) -> dict[str, SmallFile] | None:
        """Read; None where a file came without text that is not the one that is kept (one moved here, say)."""
        answer = self._client.collect_since(self._root, self._names, self._limit_bytes, since)
        self.taken_at, self.is_disk_full = answer.time, answer.full
        files: dict[str, SmallFile] = {}
        for file in answer.files:
            kept = self._kept.get(file.path) if file.text is None else file
            if kept is None or (kept.mtime, kept.size, kept.owner) != (file.mtime, file.size, file.owner):
                return None
            files[file.path] = kept
        return files
