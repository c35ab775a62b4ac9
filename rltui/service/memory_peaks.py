"""What a run's roles took of memory at their highest, beside what was estimated: its ``memory.json``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rltui.cluster.relay_types import RelayError
from rltui.layout.errors import LayoutError
from rltui.layout.load import load_text
from rltui.memory.measured import peaks_of, same_family
from rltui.onnode import rundir
from rltui.service.describe import attempt_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rltui.layout.schema import Layout
    from rltui.memory.measured import Peak
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


def family_peaks(context: Context, layout: Layout) -> Iterator[Peak]:
    """Peaks of the attempts under the cluster's run root that are over and whose layout is of the family of ``layout``.

    Raises:
        ClusterError: The cluster cannot be reached.
    """
    names = [f"*/{rundir.ATTEMPTS}/*/{name}" for name in (rundir.END, rundir.LAYOUT, rundir.MEMORY)]
    attempts: dict[str, dict[str, str]] = {}
    for file in context.cluster.client.collect(context.cluster.run_root, names):
        folder, _, name = file.path.rpartition("/")
        attempts.setdefault(folder, {})[name] = file.text or ""
    for folder, texts in attempts.items():
        if texts.keys() >= {rundir.END, rundir.LAYOUT, rundir.MEMORY} and _is_like(layout, texts[rundir.LAYOUT]):
            yield from _peaks(folder.rsplit("/", 3)[-3], texts[rundir.MEMORY])


def _is_like(layout: Layout, text: str) -> bool:
    try:
        return same_family(layout, load_text(text, rundir.LAYOUT).layout)
    except LayoutError:  # of another version of rltui
        return False


def _peaks(run: str, text: str) -> list[Peak]:
    try:
        return list(peaks_of(run, json.loads(text)))
    except (ValueError, KeyError, TypeError, AttributeError):  # cut off while it was written, or of another version
        return []
