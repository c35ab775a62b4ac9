"""Telling a missing rank from ranks that took different ways, by what each of them waited for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.diagnose.causes import Verdict
from rltui.diagnose.judging import surest
from rltui.diagnose.signs import Found, Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.diagnose.causes import Overview
    from rltui.diagnose.signs import Sighting

_REMOTE_ERROR = 0.65
"""Confidence of the sign ``ncclRemoteError``."""

_VIRTUAL = re.compile(r"\b(?:br-[0-9a-f]{6,}|veth[0-9a-f]+|docker\d+|virbr\d+|cni\d+|flannel\S*|cali[0-9a-f]+):")


def read_socket_interfaces(found: Found) -> Reading | None:
    """Bridges and veth pairs of containers look like interfaces and lead nowhere; NCCL lists what it uses.

    One alone stands on many a host that works: two or more speak.
    """
    listed = [found.spot.line.text, *(line.text for line in found.spot.after(20) if re.match(r"\s*\[\d+\]", line.text))]
    return Reading(0.65) if sum(len(_VIRTUAL.findall(text)) for text in listed) > 1 else None


def read_lost_store(found: Found) -> Reading | None:
    """The store ends with the first rank; the others' monitor, or a warning at the end, tells that it was so."""
    around = found.spot.around(20, 60)
    return None if re.search(r"destroy_process_group|TCPStore server has shut down", around) else Reading(0.8)


def read_loaded_version(found: Found) -> Reading | None:
    """torch.cuda.nccl.version() prints a tuple on the line after it."""
    for line in found.spot.after(2):
        match = re.match(r"\s*\(2, (\d+), \d+\)", line.text)
        if match is not None:
            return Reading(0.6, fields={"minor": match[1]})
    return None


def _waits(sightings: Sequence[Sighting]) -> dict[str, Sighting]:
    """The first wait that timed out of each rank, by rank."""
    first: dict[str, Sighting] = {}
    for one in sightings:
        rank = one.fields.get("rank") or one.evidence.rank
        if rank and "op" in one.fields:
            first.setdefault(rank, one)
    return first


def nccl_desync(sightings: Sequence[Sighting], overview: Overview) -> Verdict | None:
    """Somebody says so, or two ranks wait for different things."""
    if sightings:
        return surest(sightings)
    waits = list(_waits(overview.of("nccl_timeout")).values())
    for index, other in enumerate(waits):
        for one in waits[:index]:
            confidence = _contradiction(one, other, overview)
            if confidence:
                words = f"{_wait_in_words(one)}, but {_wait_in_words(other)}"
                return Verdict(confidence=confidence, sightings=(one, other), fields={"difference": words})
    return None


def _contradiction(one: Sighting, other: Sighting, overview: Overview) -> float:
    """How surely two ranks wait for different operations of one process group; each group counts from zero."""
    if all(one.fields.get(name) == other.fields.get(name) for name in ("op", "seq", "numel")):
        return 0.0
    groups = [_group(wait, overview) for wait in (one, other)]
    if groups[0] == groups[1]:
        return 0.75
    return 0.6 if "" in groups else 0.0


def _group(wait: Sighting, overview: Overview) -> str:
    """The process group of a wait, from the watchdog's next line; empty where the log has none."""
    for position in overview.of("nccl_position"):
        if all(position.fields.get(name) == wait.fields.get(name) for name in ("rank", "seq")):
            return position.fields.get("group", "")
    return ""


def _wait_in_words(sighting: Sighting) -> str:
    fields = sighting.fields
    rank = fields.get("rank") or sighting.evidence.rank
    return f"rank {rank} waits for {fields['op']} number {fields.get('seq', '?')}"


def nccl_timeout(sightings: Sequence[Sighting], _: Overview) -> Verdict | None:
    """Ranks that wait for the same thing; those that do not complain are named."""
    verdict = surest(sightings)
    if verdict is None:
        return None
    missing = _missing_ranks(sightings)
    words = f"; no word of rank{'s' if len(missing) > 1 else ''} {', '.join(missing)}" if missing else ""
    fields = {"missing": words, **verdict.fields}
    if "op" in fields:
        fields.setdefault("seq", "?")
    return structs.replace(verdict, fields=fields)


def _missing_ranks(sightings: Sequence[Sighting]) -> list[str]:
    """Ranks below the highest that complained which did not; at most four, as many silent ones mean a cut log."""
    heard = {int(rank) for rank in _waits(sightings) if rank.isdigit()}
    if len(heard) < 3:
        return []
    missing = sorted(set(range(min(max(heard) + 1, 4096))) - heard)
    return [str(rank) for rank in missing] if len(missing) <= 4 else []


def nccl_ib_error(sightings: Sequence[Sighting], overview: Overview) -> Verdict | None:
    """A remote error is what NCCL reports of any peer that went; where sockets failed it says nothing of InfiniBand."""
    said_so = [one for one in sightings if one.confidence > _REMOTE_ERROR]
    if not said_so and overview.of("nccl_system_error"):
        return None
    return surest(sightings)


def nccl_lib_mismatch(sightings: Sequence[Sighting], overview: Overview) -> Verdict | None:
    """Somebody says so, or a listing of the environment shows another minor version than torch loaded."""
    if sightings:
        return surest(sightings)
    loaded, system = overview.of("nccl_loaded"), overview.of("nccl_system")
    if not loaded or not system or loaded[0].fields["minor"] == system[0].fields["minor"]:
        return None
    return Verdict(confidence=0.65, sightings=(*system[:1], *loaded[:1]))
