"""Runs of colleagues, in the run roots that a profile names: found, listed with their owner, and only ever read."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import structs

from rltui.cluster.cluster import Cluster
from rltui.cluster.relay_client import RelayClient
from rltui.errors import ClusterError
from rltui.watch.runs import RunsReader
from rltui.watch.snapshots import RunSummary

LOOK_FOR_ROOTS_EVERY_S = 60.0
MOST_ROOTS = 64

FIND = """
IFS=
for pattern; do for folder in $pattern; do [ -r "$folder" ] && [ -d "$folder" ] && printf '%s\\0' "$folder"; done; done
exit 0
"""
"""Prints the folders that patterns of absolute paths find; none of them has a character that means more to a shell."""


class Team:
    """The colleagues of the user on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._readers: dict[str, RunsReader] = {}
        self._looked_at: float | None = None

    def runs(self) -> tuple[RunSummary, ...]:
        """Their runs as their files tell of them, newest first; of a folder that cannot be read now, those last seen.

        The scheduler is not asked for them: a job that died without a word is shown as it last said.
        """
        patterns = self._cluster.profile.team_run_roots
        if not patterns:
            return ()
        try:
            self._look_for_roots(patterns)
        except ClusterError:  # the list of the user's own runs says so
            return ()
        name = self._cluster.profile.name
        found = [run for reader in self._readers.values() for run in reader.read().runs]
        return tuple(structs.replace(run, cluster=run.cluster or name, through=name) for run in found)

    def _look_for_roots(self, patterns: list[str]) -> None:
        now = time.monotonic()
        if self._looked_at is not None and now - self._looked_at < LOOK_FOR_ROOTS_EVERY_S:
            return
        client = self._cluster.client
        roots = find_roots(client, patterns)
        self._readers = {root: self._readers.get(root) or RunsReader(client, root, of_others=True) for root in roots}
        self._looked_at = now


def find_roots(client: RelayClient, patterns: Sequence[str]) -> list[str]:
    """The folders that patterns of absolute paths find and that may be read, each once."""
    told = client.run(["sh", "-c", FIND, "sh", *patterns], timeout_s=20, idempotent=True).out
    return list(dict.fromkeys(root.rstrip("/") for root in told.split("\0") if root))[:MOST_ROOTS]
