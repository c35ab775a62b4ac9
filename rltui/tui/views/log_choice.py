"""The logs of an attempt, to choose from. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from rltui.tui.picking import PickItem
from rltui.watch.snapshots import ALL_LOGS, LogFile

OWN = ""


def log_items(files: Sequence[LogFile], current: str) -> list[PickItem]:
    """The attempt's own output, all logs together, then each; the one that is shown is marked."""
    items = [
        PickItem(id=OWN, label="the attempt's own output", detail="out.log"),
        PickItem(id=ALL_LOGS, label="all logs, merged by time", detail=f"{len(files)} logs"),
    ]
    items += [PickItem(id=file.name, label=file.name, detail=_detail(file)) for file in files if file.name != "out.log"]
    return [item._replace(urgent=item.id == current) for item in items]


def _detail(file: LogFile) -> str:
    size = f"{file.size / 1024:.0f} kB" if file.size < 1 << 20 else f"{file.size / (1 << 20):.1f} MB"
    return f"{size}  {file.node}".rstrip()
