"""What the driver reported of a run's cards: the Xids that its samplers noted as events."""

from __future__ import annotations

import re

from msgspec import Struct

from rltui.cluster.relay_types import FileRange
from rltui.onnode import rundir
from rltui.onnode.xids import hardware_reason
from rltui.watch.lines import decode
from rltui.watch.node_samples import GpuSample
from rltui.watch.snapshots import RunSnapshot, RunSummary
from rltui.watch.text import plain

EVENTS_BYTES = 16 << 10
"""End of an attempt's events that is looked at for a row of the list: some hundred of them."""

LOST = "gpu-lost"

_XID = re.compile(r"\): (?P<xid>\d+), GPU (?P<gpu>-?\d+) of (?P<host>[\w.-]+)")


class _Event(Struct, frozen=True):
    kind: str = ""
    text: str = ""


def events_range(run: RunSummary) -> FileRange:
    """The end of the newest attempt's events."""
    return FileRange(f"{rundir.attempt_folder(run.path, run.attempt)}/{rundir.EVENTS}", None, EVENTS_BYTES)


def newest_fault(data: bytes) -> str:
    """The newest fault of a card in the end of an ``events.jsonl``, in a few words; empty where there is none.

    Xids that tell of the program, of a repair, or of what followed another one, are no fault of a card.
    """
    for raw in reversed(data.split(b"\n")):
        event = decode(raw, _Event) if b'"xid"' in raw else None
        if event is not None and event.kind == "xid" and (words := fault_words(event.text)):
            return words
    return ""


def fault_words(text: str) -> str:
    """An event of kind ``xid`` in a few words; empty where it is no fault of a card."""
    reason, match = hardware_reason(text), _XID.search(text)
    if not reason or match is None:
        return ""
    card = f"GPU {match['gpu']} of {plain(match['host'])}" if int(match["gpu"]) >= 0 else plain(match["host"])
    return f"Xid {match['xid']}: {card}{' is lost' if reason == LOST else ''}"


def ecc_words(gpu: GpuSample) -> str:
    """How often a card's memory gave wrong data; empty where it did not, or does not count."""
    number = gpu.ecc_uncorrected or 0
    return f"{number} ECC error{'s' * (number > 1)}" if number else ""


def held_words(gpu: GpuSample) -> str:
    """Why a card's clocks are held down; empty where they are not."""
    return f"held back: {', '.join(gpu.held_back)}" if gpu.held_back else ""


def trouble_words(gpu: GpuSample, xid: str) -> str:
    """That a card fell off the bus or reported an Xid; empty where it did neither."""
    return ", ".join(filter(None, ("" if gpu.answers else "does not answer", f"Xid {xid}" if xid else "")))


def unused_words(gpu: GpuSample, xid: str) -> str:
    """What a card that nobody computes on is: free, unless it has a fault."""
    return trouble_words(gpu, xid) or "free"


def xids_by_card(picture: RunSnapshot) -> dict[tuple[str, int], str]:
    """The last Xid of each GPU in this attempt, by host and index; a fault of the card before what followed it."""
    attempt = picture.summary.attempt
    told = [one for one in picture.events if one["kind"] == "xid" and one["attempt"] == attempt]
    told.sort(key=lambda event: bool(hardware_reason(event["text"])))
    found = [(event, _XID.search(event["text"])) for event in told]
    return {(str(event.get("host", "")), int(match["gpu"])): match["xid"] for event, match in found if match}
