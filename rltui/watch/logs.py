"""The end of an attempt's log as plain lines."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from rltui.watch.lines import LineFollower, follow
from rltui.watch.snapshots import LogSnapshot
from rltui.watch.text import plain_line

if TYPE_CHECKING:
    from rltui.cluster.relay_client import RelayClient

FIRST_BYTES = 1 << 18
MAX_LINES = 2000


class LogReader:
    """Reads one log from near its end, and on as it grows.

    Args:
        client: The relay of the cluster.
        path: The log.
        max_lines: Newest lines that a snapshot holds.
    """

    def __init__(self, client: RelayClient, path: str, max_lines: int = MAX_LINES) -> None:
        self.follower = LineFollower(path, self._take, first_bytes=FIRST_BYTES, keep_tail=True)
        self._client = client
        self._lines: deque[str] = deque(maxlen=max_lines)
        self._new: list[str] = []

    def new_lines(self) -> list[str]:
        """Read on, and return the lines that are new since the last call; at first, those of the last 256 kB.

        Raises:
            ClusterError: The cluster cannot be reached.
        """
        self._new = []
        follow(self._client, [self.follower])
        return self._new

    def snapshot(self) -> LogSnapshot:
        """The newest lines read so far."""
        return LogSnapshot(lines=tuple(self._lines), offset=self.follower.line_end)

    def _take(self, lines: list[bytes]) -> None:
        fresh = [plain_line(line) for line in lines]
        self._new = fresh if len(self._new) > MAX_LINES else self._new + fresh
        self._lines.extend(fresh)
