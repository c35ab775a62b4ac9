"""torch's flight records of an attempt, read through the relay."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rltui.cluster.relay_types import RelayError
from rltui.diagnose.flight_record import lines_of
from rltui.onnode import flight_recorder, rundir

if TYPE_CHECKING:
    from rltui.cluster.relay_client import RelayClient

CHUNK_BYTES = 4 << 20
MOST_RECORDS = 512
MOST_BYTES = 1 << 27
"""Of all records together: of a larger run some ranks are left out."""


def read_records(client: RelayClient, attempt: str) -> dict[str, bytes]:
    """What torch left when a collective of the attempt timed out, by the files' names; most often nothing."""
    folder = f"{attempt}/{rundir.EVIDENCE}"
    try:
        entries = [one for one in client.list(folder) if one.type == "file" and flight_recorder.named(one.name)]
    except RelayError:  # nobody asked, or it is an attempt of an older rltui
        return {}
    found: dict[str, bytes] = {}
    left = MOST_BYTES
    for entry in entries[:MOST_RECORDS]:
        if entry.size <= min(left, flight_recorder.MOST_BYTES):
            found[entry.name] = _whole(client, f"{folder}/{entry.name}")
            left -= len(found[entry.name])
    return found


def record_lines(client: RelayClient, attempt: str) -> list[str]:
    """Which ranks did not join which collective, in lines for a diagnosis."""
    return lines_of(read_records(client, attempt))[0]


def in_json(data: bytes) -> str:
    """A record as text, for people and other programs; empty for what is none, or holds more than plain data."""
    try:
        return json.dumps(flight_recorder.read(data), default=str)
    except (ValueError, RecursionError):
        return ""


def _whole(client: RelayClient, path: str) -> bytes:
    data = b""
    while True:
        try:
            chunk = client.read(path, len(data), CHUNK_BYTES)
        except RelayError:  # gone, or not ours
            return data
        data += chunk.data
        if not chunk.data or len(data) >= chunk.size or len(data) > flight_recorder.MOST_BYTES:
            return data
