"""An Xid that the driver reports on a node is an event of the run at once, and the diagnosis of its death."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.sources import Source
from waiting import eventually

if TYPE_CHECKING:
    from lab import Lab

ROOT = Path(__file__).parents[2]


def test_an_xid_of_the_driver_is_an_event_and_a_cause(slurm_cluster: Lab) -> None:
    attempt = "/home/alice/attempt"
    slurm_cluster.exec("node2", ["mkdir", attempt])
    argv = [sys.executable, "-m", "rltui.onnode.sampler", "--attempt", attempt, "--mark", "none", "--interval", "0.2"]
    behind = ["sh", "-c", '"$@" >/dev/null 2>&1 & echo $!', "sh", "env", f"PYTHONPATH={ROOT}", *argv]
    pid = slurm_cluster.exec("node2", behind).stdout.strip()
    try:
        await_text(slurm_cluster, f"{attempt}/gpu-node2.jsonl", "H100")
        slurm_cluster.gpus("node2", xid=79, lost=True, only=3)
        events = await_text(slurm_cluster, f"{attempt}/events.jsonl", "Xid")
    finally:
        slurm_cluster.exec("node2", ["kill", pid], check=False)
    assert ": 79, GPU 3 of node2" in events
    [found] = diagnose([Source("events.jsonl", (events.encode(),))])
    assert found.id == "xid_79_fell_off_bus"


def await_text(cluster: Lab, path: str, wanted: str) -> str:
    """The text of a file on the nodes, once ``wanted`` is in it."""

    def found() -> str:
        text: str = cluster.exec("node2", ["cat", path], check=False).stdout
        return text if wanted in text else ""

    return eventually(found, f"{wanted!r} in {path}")
