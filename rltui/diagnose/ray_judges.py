"""Ray's messages that mean something only together with their numbers, or with what comes after."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.diagnose.causes import Verdict
from rltui.diagnose.frames import frames_of
from rltui.diagnose.judging import surest, unless_followed_by
from rltui.diagnose.signs import Found, Reading
from rltui.diagnose.verdicts import Remedy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.diagnose.causes import Fields, Overview
    from rltui.diagnose.signs import Sighting

TINY = 0.1
"""Ray asks for shares like 0.001 of a node's own resource to pin something to it; the autoscaler cannot know that."""

PATIENCE_S = 60

_SOON_LINES = 200
_NEXT_LINES = 12

_AMOUNT = re.compile(r"['\"]?([\w.:-]+)['\"]?: ([\d.]+)")
_DEMAND = re.compile(r"\{[^{}]{1,300}\}")
_GPU_NAMES = ("GPU", "NPU", "accelerator_type")


def read_demand(found: Found) -> Reading | None:
    """A demand is infeasible if it is one at all: pinning shares and empty demands are not."""
    demand = found.groups.get("demand", "")
    if not demand and (match := _DEMAND.search(found.spot.line.text)):
        demand = match[0]
    amounts = {name: float(number) for name, number in _AMOUNT.findall(demand) if number.count(".") < 2}
    if amounts and all(value <= TINY or name.startswith("node:") for name, value in amounts.items()):
        return None
    wants_gpu = any(name.startswith(_GPU_NAMES) for name in amounts)
    if re.search("pending tasks|right now", found.spot.line.text) and not wants_gpu:
        return None  # tasks queue for CPUs all the time
    if "pending" in found.spot.line.text:
        return Reading(0.7 if wants_gpu else 0.65, fields={"demand": demand.strip()})
    return Reading(0.9 if wants_gpu else 0.8, fields={"demand": demand.strip()} if amounts else {})


def read_placement_wait(found: Found) -> Reading | None:
    """VLLM says how long it has waited for its placement group, 10 s, 20 s, 40 s …; early ones are normal."""
    return Reading(0.75) if int(found.groups["seconds"]) >= PATIENCE_S else None


def read_get_timeout(found: Found) -> Reading | None:
    """Waiting in vain for a placement group shows as a plain timeout; the traceback tells what was waited for."""
    frames = "\n".join(map(str, frames_of(found.spot)))
    return Reading(0.7) if re.search(r"placement_group|\bpg\.ready|\.ready\(\)", frames) else None


def read_nested_srun(found: Found) -> Reading | None:
    """Inside a batch job, srun makes steps; one that queues has lost its job's environment and asks for a new job."""
    before = "\n".join(line.text for line in found.spot.before(6))
    return Reading(0.65) if re.search(r"(?i)\bray start\b|\bIP head\b|starting (?:head|worker)", before) else None


def read_node_info(found: Found) -> Reading | None:
    """A node that starts asks the head for itself again and again, until the head knows it or time is up."""
    after = "\n".join(line.text for line in found.spot.after(12))
    return None if "Ray runtime started" in after else Reading(0.7)


def read_head_reached(found: Found) -> Reading:
    """Ray says that it is connected; to which address stands in the line before."""
    for line in found.spot.before(3):
        match = re.search(r"cluster at address: ([\w.:-]+?)\.*$", line.text)
        if match is not None:
            return Reading(1.0, fields={"address": match[1]})
    return Reading(1.0)


def ray_head_unreachable(sightings: Sequence[Sighting], overview: Overview) -> Verdict | None:
    """Failed tries before a connection to the same address that came about are how every bring-up looks."""
    reached = overview.of("ray_head_reached")
    left = unless_followed_by(sightings, reached, same="address")
    # where the log has no line with the address that was reached, it is the one that was tried just before
    nameless = [one for one in reached if "address" not in one.fields]
    return surest(
        [
            one
            for one in left
            if "Check failed" in one.evidence.text  # a process that ends itself so does not reach it later
            or not any(_soon_after(other, one, _NEXT_LINES) for other in nameless)
        ]
    )


def ray_actor_died(sightings: Sequence[Sighting], overview: Overview) -> Verdict | None:
    """A dead actor; where threads could not be started, that is why, whatever hint Ray prints."""
    limits = overview.of("thread_limit")
    verdict = surest(_before_the_end(sightings, overview))
    if not limits:
        return verdict
    if verdict is None:
        return Verdict(confidence=0.65, sightings=tuple(limits), fields={"threads": "yes"})
    return structs.replace(
        verdict,
        confidence=0.85,
        sightings=(*limits, *verdict.sightings),
        fields={**verdict.fields, "threads": "yes"},
    )


def _before_the_end(sightings: Sequence[Sighting], overview: Overview) -> list[Sighting]:
    """Deaths right after the training said that it was done are Ray going down, unless somebody failed by it."""
    ends, failures = overview.of("training_done"), overview.of("failed_end")
    return [
        one
        for one in sightings
        if not any(_soon_after(one, end) for end in ends) or any(_soon_after(failure, one) for failure in failures)
    ]


def _soon_after(one: Sighting, other: Sighting, lines: int = _SOON_LINES) -> bool:
    return one.source == other.source and 0 <= one.order - other.order <= lines


def actor_remedies(fields: Fields) -> tuple[Remedy, ...]:
    """Once more from the checkpoint; the limit of processes where that is what was hit."""
    once = Remedy(
        id="retry-once",
        summary="Read the worker's own log and dmesg on its node first; then once more from the newest checkpoint.",
        safe="auto",
    )
    if "threads" not in fields:
        return (once,)
    limit = Remedy(
        id="raise-process-limit",
        summary="The limit of processes and threads was hit: raise it, and start fewer workers and BLAS threads.",
        commands=("ulimit -u $(ulimit -Hu)", "export OMP_NUM_THREADS=1"),
        safe="auto",
    )
    return (limit, once)
