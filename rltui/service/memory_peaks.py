"""What a run's roles took of memory at their highest, beside what was estimated: its ``memory.json``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rltui.cluster.relay_types import RelayError
from rltui.onnode import rundir
from rltui.service.describe import attempt_path

if TYPE_CHECKING:
    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary


def read_memory(context: Context, run: RunSummary) -> dict[str, Any] | None:
    """The newest attempt's ``memory.json``; None where it has not been written yet.

    Raises:
        ClusterError: The cluster cannot be reached.
    """
    try:
        found = json.loads(context.cluster.client.read(f"{attempt_path(run)}/{rundir.MEMORY}").data)
    except RelayError as error:
        if error.kind != "missing":
            raise
        return None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
