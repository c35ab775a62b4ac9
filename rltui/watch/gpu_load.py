"""How busy the GPUs of a run are now, out of the last lines that its samplers wrote."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rltui.cluster.relay_types import FileRange
from rltui.onnode import rundir
from rltui.watch.hosts import SamplerLine
from rltui.watch.lines import decode
from rltui.watch.snapshots import RunSummary

LINE_BYTES = 16 << 10
"""A line with all processes of a node is a few thousand bytes."""
MOST_NODES = 8
"""Nodes of a run that are asked for: a column of the list is no reason to open a thousand files."""
MOST_WATCHED, WATCHED_BYTES = 64, 32 << 10
"""Nodes of a run whose GPUs are compared with each other now and then, and half a minute of eight GPUs."""
OLD_S = 60.0
"""A sample that is so much older than the newest tells nothing of now."""


def sample_ranges(
    run: RunSummary, hosts: Sequence[str], most: int = MOST_NODES, length: int = LINE_BYTES
) -> list[FileRange]:
    """The ends of the samplers' files of the newest attempt on its first nodes."""
    folder = rundir.attempt_folder(run.path, run.attempt)
    names = [host.split(".")[0] for host in hosts[:most]]
    return [FileRange(f"{folder}/gpu-{name}.jsonl", None, length) for name in names]


def load_percent(ends: Iterable[bytes], now: float) -> float | None:
    """The mean load of all GPUs in the last lines; None where nothing told of one lately.

    Args:
        ends: The end of each node's file.
        now: Epoch seconds by the clock of the cluster's files.
    """
    lines = [line for line in map(_last_line, ends) if line is not None and now - line.t < OLD_S]
    loads = [gpu.util for line in lines for gpu in line.gpus if gpu.util is not None]
    return sum(loads) / len(loads) if loads else None


def _last_line(data: bytes) -> SamplerLine | None:
    """The newest whole line; what stands behind the last line end is still being written."""
    for raw in reversed(data.split(b"\n")[:-1][-2:]):
        line = decode(raw, SamplerLine)
        if line is not None:
            return line
    return None
