"""The layout of a run as a file of this machine, wherever the run is, for what reads and judges files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.cluster.relay_types import RelayError
from rltui.errors import UsageError
from rltui.onnode import rundir
from rltui.paths import cache_dir, ensure_private
from rltui.service.describe import attempt_path

if TYPE_CHECKING:
    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary

FOLDER = "layouts"


def layout_copy(context: Context, run: RunSummary) -> str:
    """Copy the layout of the newest attempt into the cache; returns the path.

    Args:
        context: The run's cluster.
        run: The run.

    Raises:
        UsageError: It has none, because it runs another system's script.
        ClusterError: The cluster cannot be reached.
    """
    try:
        data = context.cluster.client.read(f"{attempt_path(run)}/{rundir.LAYOUT}").data
    except RelayError as error:
        if error.kind != "missing":
            raise
        raise UsageError(f"{run.run_id} has no layout: it runs a script.", "s takes the words behind it.") from error
    path = ensure_private(cache_dir() / FOLDER) / f"{run.run_id}.yaml"
    path.write_bytes(data)
    return str(path)
