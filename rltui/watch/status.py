"""Queues, rates and weight versions of a run, from its status endpoint."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from rltui.cluster.relay_client import RelayClient
from rltui.onnode import server_notes
from rltui.watch.endpoint import Endpoint, get
from rltui.watch.lines import decode
from rltui.watch.snapshots import QueueSnapshot, StatusSnapshot

PATH = server_notes.STATUS


class _Queue(Struct, frozen=True):
    current: int = 0
    maxsize: int = 0


class _Tokens(Struct, frozen=True):
    prefill_tokens_per_sec: float | None = None
    decode_tokens_per_sec: float | None = None


class _Phase(Struct, frozen=True):
    name: str = ""
    since: float = 0.0


class _Status(Struct, frozen=True):
    last_updated: float | str = 0.0
    """Epoch seconds, or open-instruct's local time in ISO's form."""
    queues: dict[str, _Queue] = {}
    token_stats: _Tokens = _Tokens()
    phase: _Phase = _Phase()
    weight_versions: dict[str, int] = {}
    learner_weight_version: int | None = None


def parse_status(body: bytes) -> StatusSnapshot:
    """Return what an answer of ``/api/status`` says; open-instruct's, which says less, is understood too."""
    status = decode(body, _Status)
    if status is None:
        return StatusSnapshot(problem="The status endpoint's answer cannot be understood.")
    return StatusSnapshot(
        taken_at=_seconds(status.last_updated),
        queues=tuple(
            QueueSnapshot(name=name, current=queue.current, maxsize=queue.maxsize)
            for name, queue in status.queues.items()
        ),
        phase=status.phase.name,
        phase_since=status.phase.since,
        learner_weight_version=status.learner_weight_version,
        engine_weight_versions=status.weight_versions,
        decode_tokens_per_second=status.token_stats.decode_tokens_per_sec,
        prefill_tokens_per_second=status.token_stats.prefill_tokens_per_sec,
    )


def _seconds(at: float | str) -> float:
    if not isinstance(at, str):
        return at
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return 0.0


def read_status(client: RelayClient, endpoint: Endpoint, before: StatusSnapshot) -> StatusSnapshot:
    """Ask the status endpoint; where it does not answer well, what it said ``before`` stays, with the problem."""
    reply = get(client, endpoint, PATH)
    fresh = StatusSnapshot(problem=reply.problem) if reply.problem else parse_status(reply.body)
    return msgspec.structs.replace(before, problem=fresh.problem) if fresh.problem else fresh
