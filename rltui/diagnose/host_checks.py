"""Host errors whose meaning depends on the path or on who says it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rltui.diagnose.judging import surest
from rltui.diagnose.signs import STATES, Found, Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.diagnose.causes import Overview, Verdict
    from rltui.diagnose.signs import Sighting

_KILLED = 0.5
"""Confidence of signs that only say that a process was killed."""

_PATH = re.compile(r"['\"‘“]((?:/|[A-Za-z]:\\)[^'\"’”]{1,300})['\"’”]|(?:^|\s)(/[\w.@+~/-]{2,300})")
_PORT = re.compile(r"(?:\]|[\w.)'\"]):(\d{2,5})\b|[,(] ?(\d{2,5})\)|port[ =:]+(\d{2,5})", re.IGNORECASE)
_RAY = re.compile(r"(?i)\bgcs|raylet|ray start|ray::|ray/_private|dashboard|redis|\bray\b.{0,40}port")


def host_oom(sightings: Sequence[Sighting], overview: Overview) -> Verdict | None:
    """A process killed by signal 9 hints at memory only where nothing else says why it was ended."""
    verdict = surest(sightings)
    if verdict is None or verdict.confidence > _KILLED:
        return verdict
    others = set(overview.sightings) - STATES - {"host_oom_slurm", "ray_actor_died", "engine_core_died"}
    return None if others else verdict


def read_no_space(found: Found) -> Reading | None:
    """Which disk: shared memory is a matter of the loader's, the rest of disks."""
    text = found.spot.line.text
    if "slurmd" in text and "spool" in text:
        return None  # the node's own disk: Slurm's matter
    if re.search(r"/dev/shm|</torch_|psm_|shm_open", text):
        return Reading(0.85, "dataloader_killed")
    match = _PATH.search(text)
    path = (match[1] or match[2]) if match else ""
    return Reading(0.95, fields={"path": path} if path else {})


def read_port(found: Found) -> Reading:
    """Ray's own ports are a matter of two Rays on a node, others of two runs or of bad luck."""
    text = found.spot.line.text
    match = _PORT.search(text)
    port = next((group for group in match.groups() if group), "") if match else ""
    actor = found.spot.line.actor
    cause = "ray_port_in_use" if _RAY.search(text) or actor in ("raylet", "gcs_server") else ""
    return Reading(0.9, cause, {"port": port} if port else {})
