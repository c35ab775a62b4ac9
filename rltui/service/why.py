"""Why a run died: its logs, events and end, read through the relay and diagnosed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rltui.cluster.relay_types import RelayError
from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.fitting import fitted
from rltui.diagnose.index import CAUSES
from rltui.diagnose.sources import Source, decoded, text_source
from rltui.errors import RltuiError
from rltui.layout.load import load_text
from rltui.onnode import rundir
from rltui.runs.directory import read_layout
from rltui.watch.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rltui.cluster.relay_client import RelayClient
    from rltui.diagnose.verdicts import Diagnosis
    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary

HEAD_BYTES = 1 << 26
TAIL_BYTES = 1 << 26
"""Of a larger log its beginning and its end are read: the first error and the last words."""

CHUNK_BYTES = 4 << 20
MOST_LOGS = 200
RAY_LOGS = "ray-logs"

_READ_FIRST = (rundir.OUT_LOG, "ray.log")
_UNWANTED = (rundir.METRICS, ".token")
_BESIDE_THE_END = frozenset({"wrapper", "effect"})
"""Tiers that say nothing about an end that was wanted: whatever is ended leaves such words."""


def diagnose_run(context: Context, run: RunSummary) -> tuple[Diagnosis, ...]:
    """Return what was wrong with the newest attempt of ``run``, causes first; remedies are in its layout's numbers.

    Raises:
        ClusterError: The cluster cannot be reached.
    """
    client = context.cluster.client
    attempt = rundir.attempt_folder(run.path, run.attempt)
    sources = [_log(client, attempt, name) for name in _logs(client, attempt)]
    found = diagnose([*sources, text_source(rundir.END, _last_words(run))])
    if run.end is not None and run.end.outcome in ("finished", "cancelled"):
        found = tuple(one for one in found if CAUSES[one.id].tier not in _BESIDE_THE_END)
    layout = _layout(client, attempt)
    return tuple(fitted(one, layout) for one in found) if layout else found


def failure_word(diagnoses: Sequence[Diagnosis]) -> str:
    """Return the id of the first cause, for a row of a list; empty where there is none that is sure enough."""
    return diagnoses[0].id if diagnoses and not diagnoses[0].secondary else ""


def _last_words(run: RunSummary) -> str:
    """Stage and end of the attempt as lines, so that they are evidence like any other."""
    stage = f"stage: {run.stage.stage} {run.stage.detail}"
    if run.end is None:
        return stage
    return f"outcome: {run.end.outcome}\nexit code: {run.end.exit_code}\nreason: {run.end.reason}\n{stage}"


def _logs(client: RelayClient, attempt: str) -> list[str]:
    """Names of the attempt's logs, its own first, then the scheduler's and Ray's."""
    names = [entry.name for entry in client.list(attempt) if entry.type == "file" and _is_log(entry.name)]
    names.sort(key=lambda name: (name not in _READ_FIRST, name))
    try:
        of_ray = [entry.name for entry in client.list(f"{attempt}/{RAY_LOGS}") if entry.type == "file"]
    except RelayError:  # there is no such folder unless Ray left logs behind
        of_ray = []
    return [*names, *(f"{RAY_LOGS}/{name}" for name in sorted(of_ray))][:MOST_LOGS]


def _is_log(name: str) -> bool:
    if name in _UNWANTED or name.startswith("gpu-"):
        return False
    return name.endswith((".log", ".out", ".err", ".gz")) or name == rundir.EVENTS


def _log(client: RelayClient, attempt: str, name: str) -> Source:
    return Source(plain(name), decoded(_blocks(client, f"{attempt}/{name}")))


def _blocks(client: RelayClient, path: str) -> Iterator[bytes]:
    """The file from its start, a piece at a time; of one that is too large the middle is left out."""
    offset, skipped = 0, False
    while True:
        try:
            chunk = client.read(path, offset, CHUNK_BYTES)
        except RelayError:  # rotated away or not readable: what else there is may tell enough
            return
        yield chunk.data
        offset = chunk.offset + len(chunk.data)
        if not chunk.data or offset >= chunk.size:
            return
        if not skipped and offset >= HEAD_BYTES and chunk.size > HEAD_BYTES + TAIL_BYTES:
            offset, skipped = chunk.size - TAIL_BYTES, True
            yield b"\n"


def _layout(client: RelayClient, attempt: str) -> dict[str, object]:
    try:
        loaded = load_text(read_layout(client, attempt), rundir.LAYOUT)
    except RltuiError:  # an unreadable layout costs the numbers of the remedies, not the diagnosis
        return {}
    values = msgspec.to_builtins(loaded.layout)
    return values if isinstance(values, dict) else {}
