"""torch's flight records of an attempt, read through the relay."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rltui.cluster.relay_client import RelayClient, pieces
from rltui.cluster.relay_types import RelayError
from rltui.diagnose.flight_record import lines_of
from rltui.diagnose.stuck import stood_still
from rltui.onnode import flight_recorder, progress, rundir

if TYPE_CHECKING:
    from rltui.diagnose.run_words import RunPicture

MOST_RECORDS = 512
MOST_BYTES = 1 << 27
"""Of all records together: of a larger run some ranks are left out."""


def read_records(client: RelayClient, attempt: str) -> dict[str, bytes]:
    """What torch left when a collective of the attempt timed out, and the newest that was asked for, by file name."""
    folder = f"{attempt}/{rundir.EVIDENCE}"
    try:
        named = [
            one
            for one in client.list(folder)
            if one.type == "file" and not one.name[0].isdigit() and flight_recorder.named(one.name)
        ]
    except RelayError:  # nobody asked, or it is an attempt of an older rltui
        return {}
    wanted = ("", max((flight_recorder.request_of(one.name) for one in named), default=""))
    entries = [one for one in named if flight_recorder.request_of(one.name) in wanted]
    found: dict[str, bytes] = {}
    left = MOST_BYTES
    for entry in entries[:MOST_RECORDS]:
        if entry.size <= min(left, flight_recorder.MOST_BYTES):
            found[entry.name] = _whole(client, f"{folder}/{entry.name}")
            left -= len(found[entry.name])
    return found


def record_lines(client: RelayClient, attempt: str, picture: RunPicture) -> list[str]:
    """Which ranks did not join which collective, in lines for a diagnosis; of the past where the run has gone on."""

    def tells(name: str) -> bool:
        request = flight_recorder.request_of(name)
        return not request or stood_still(int(request) / 1000, picture, progress.scale())

    return lines_of({name: data for name, data in read_records(client, attempt).items() if tells(name)})[0]


def in_json(data: bytes) -> str:
    """A record as text, for people and other programs; empty for what is none, or holds more than plain data."""
    try:
        return json.dumps(flight_recorder.read(data), default=str)
    except (ValueError, RecursionError):
        return ""


def _whole(client: RelayClient, path: str) -> bytes:
    data = b""
    try:
        for chunk in pieces(client, path):
            data += chunk.data
            if len(data) > flight_recorder.MOST_BYTES:
                break
    except RelayError:  # gone, or not ours: what was read is what there is
        pass
    return data
