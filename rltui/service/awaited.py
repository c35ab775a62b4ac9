"""For whom the others wait in an attempt that stands still: read on its node, told as an event and printed."""

from __future__ import annotations

import sys
from pathlib import Path

from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient
from rltui.diagnose.stuck import held_up_by
from rltui.onnode import rundir
from rltui.service.read_evidence import read_evidence
from rltui.watch.text import plain


def note(attempt: Path) -> list[str]:
    """Write whom the newest evidence names into the attempt's events; returns a line for each."""
    client = RelayClient(LocalTransport())
    try:
        seen = read_evidence(client, str(attempt))
    finally:
        client.close()
    lines = [plain(line) for line in held_up_by(seen, is_overdue=True)] if seen is not None else []
    for line in lines:
        rundir.log_event(str(attempt), rundir.AWAITED, line)
    return lines


if __name__ == "__main__":
    rundir.keep_private(sys.argv[1])
    for line in note(Path(sys.argv[1])):
        print(line)
