"""Estimates beside what earlier runs of the same family took: their peaks, and the estimate that these correct.

A run's ``memory.json`` has each role's peaks and what was estimated for it. The same arithmetic errs alike for runs of
one family, so the share by which it was off there corrects the part that torch holds here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from rltui.layout.roles import SERVED
from rltui.layout.schema import Layout
from rltui.memory.estimate import LayoutEstimate, Moment
from rltui.placement.bundles import ROLES

KINDS = {"rollout": "engine"}
"""What ``memory.json`` calls a role, where it is another word."""

FAMILY = (
    "model", "precision", "zero_stage", "tensor_parallel", "sequence_parallel", "hpz_partition", "offload", "optimizer",
    "lora_rank", "freeze_vision", "gradient_checkpointing", "chunked_logits", "engine",
)  # fmt: skip
"""Keys of a role that decide what its memory is made of. How much of it there is (GPUs, lengths, rows) may differ."""


class Peak(Struct, frozen=True, kw_only=True):
    """The most that a kind of role held at one moment of a run, and what had been estimated, both by torch's allocator.

    Attributes:
        run: The run's id.
        kind: Kind of role.
        moment: The moment.
        measured_gib: What tensors took. What the allocator keeps besides it gives back before it fails.
        expected_gib: The estimate of that run.
    """

    run: str
    kind: str
    moment: str
    measured_gib: float
    expected_gib: float


class Correction(Struct, frozen=True, kw_only=True):
    """One moment of a role, estimated and corrected.

    Attributes:
        role: The role.
        moment: The moment.
        measured: The run that was furthest above its estimate, or least below it.
        runs: How many runs of the family had this moment.
        estimate_gib: All of the card's memory, as estimated.
        corrected_gib: The same, with torch's part as far off as in ``measured``.
    """

    role: str
    moment: str
    measured: Peak
    runs: int
    estimate_gib: float
    corrected_gib: float


def same_family(one: Layout, other: Layout) -> bool:
    """Whether memory of both layouts is made of the same things, on the same cards."""
    return all(one.hardware_of(role).gpu == other.hardware_of(role).gpu for role in ROLES) and _family(one) == _family(
        other
    )


def _family(layout: Layout) -> list[tuple[str, list[Any]]]:
    roles = ((name, getattr(layout.roles, name)) for name in ("learner", "rollout", "reference", "critic", *SERVED))
    return [(name, [getattr(role, key, None) for key in FAMILY]) for name, role in roles if role is not None]


def peaks_of(run: str, document: Mapping[str, Any]) -> Iterator[Peak]:
    """The peaks of a ``memory.json``, the highest of each kind of role; nothing of what ran without a card."""
    highest: dict[tuple[str, str], float] = {}
    for role in document.get("roles", ()):
        for moment, peak in role.get("moments", {}).items():
            size = peak.get("allocated_gib", 0.0)
            highest[role["kind"], moment] = max(size, highest.get((role["kind"], moment), 0.0))
    expected = document.get("estimate", {}).get("roles", {})
    for (kind, moment), size in highest.items():
        planned = expected.get(kind, {}).get(moment, {}).get("torch_gib")
        if size and planned:
            yield Peak(run=run, kind=kind, moment=moment, measured_gib=size, expected_gib=planned)


def corrections(estimate: LayoutEstimate, peaks: Iterable[Peak]) -> tuple[Correction, ...]:
    """Every moment of ``estimate`` that earlier runs measured, in the table's order."""
    known: dict[tuple[str, str], list[Peak]] = {}
    for peak in peaks:
        known.setdefault((peak.kind, peak.moment), []).append(peak)
    return tuple(
        _corrected(role.role, moment, found)
        for role in estimate.roles
        for moment in role.moments
        if (found := known.get((KINDS.get(role.role, role.role), moment.moment)))
    )


def _corrected(role: str, moment: Moment, peaks: list[Peak]) -> Correction:
    worst = max(peaks, key=lambda peak: peak.measured_gib / peak.expected_gib)
    return Correction(
        role=role,
        moment=moment.moment,
        measured=worst,
        runs=len({peak.run for peak in peaks}),
        estimate_gib=moment.total_gib,
        corrected_gib=moment.total_gib + moment.own_gib * (worst.measured_gib / worst.expected_gib - 1),
    )


def lines(found: Iterable[Correction]) -> Iterator[str]:
    """The corrections as lines, each with the run that it stands on."""
    for each in found:
        peak = each.measured
        others = f", the furthest of {each.runs} runs" if each.runs > 1 else ""
        off = peak.measured_gib / peak.expected_gib - 1
        yield (
            f"measured  {each.role} {each.moment}: {peak.run}{others} held {peak.measured_gib:.1f} GiB where "
            f"{peak.expected_gib:.1f} were estimated ({off:+.0%}); as far off, this is {each.corrected_gib:.1f} GiB, "
            f"not {each.estimate_gib:.1f}"
        )
