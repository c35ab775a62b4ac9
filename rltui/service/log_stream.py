"""The logs of a run's newest attempt as one stream: which take part, and a window of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.cluster.relay_types import RelayError
from rltui.service.describe import attempt_path
from rltui.watch.attempt_logs import RAY_LOGS, log_files
from rltui.watch.log_merge import open_sources
from rltui.watch.log_times import zone_of

if TYPE_CHECKING:
    from rltui.cluster.relay_client import RelayClient
    from rltui.watch.log_merge import LogSource
    from rltui.watch.snapshots import LogFile, RunSummary


def logs_of(client: RelayClient, run: RunSummary) -> tuple[LogFile, ...]:
    """The logs of a run's newest attempt, of all its nodes.

    Raises:
        ClusterError: The cluster cannot be reached.
    """
    path = attempt_path(run)
    try:
        rays = client.list(f"{path}/{RAY_LOGS}")
    except RelayError as error:
        if error.kind != "missing":
            raise
        rays = ()
    return log_files(client.list(path), rays)


def sources_of(client: RelayClient, run: RunSummary, files: tuple[LogFile, ...]) -> list[LogSource]:
    """``files`` of a run, ready to be merged."""
    return open_sources(client, attempt_path(run), files, zone_of(client), run.created_at)
