"""What a run's roles took of memory at their highest, beside what was estimated: its ``memory.json``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from rltui.check.findings import Finding
from rltui.errors import ClusterError, RltuiError
from rltui.layout.errors import LayoutError
from rltui.layout.load import load_text
from rltui.layout.schema import Layout
from rltui.memory.layouts import estimate_layout, estimate_roles
from rltui.memory.measured import KINDS, Peak, corrections, peaks_of, same_family
from rltui.onnode import rundir
from rltui.runs.claims import if_there
from rltui.runs.directory import load_attempt_layout
from rltui.service.context import Context
from rltui.service.describe import attempt_path
from rltui.watch.lines import parse_object
from rltui.watch.node_samples import RoleMemory
from rltui.watch.owners import ROLE_NAMES
from rltui.watch.snapshots import RunSummary

MEASURED = "MEASURED"
"""Code of what earlier runs say of an estimate: it is no rule's finding."""


def read_memory(context: Context, run: RunSummary) -> dict[str, Any] | None:
    """The newest attempt's ``memory.json``; None where it has not been written yet."""
    data = if_there(lambda: context.cluster.client.read(f"{attempt_path(run)}/{rundir.MEMORY}").data)
    return parse_object(data or b"")


def family_peaks(context: Context, layout: Layout) -> Iterator[Peak]:
    """Peaks of attempts under the cluster's run root that are over and whose layout is of the family of ``layout``."""
    names = [f"*/{rundir.ATTEMPTS}/*/{name}" for name in (rundir.END, rundir.LAYOUT, rundir.MEMORY)]
    attempts: dict[str, dict[str, str]] = {}
    for file in context.cluster.client.collect(context.cluster.run_root, names):
        folder, _, name = file.path.rpartition("/")
        attempts.setdefault(folder, {})[name] = file.text or ""
    for folder, texts in attempts.items():
        if texts.keys() >= {rundir.END, rundir.LAYOUT, rundir.MEMORY} and _is_like(layout, texts[rundir.LAYOUT]):
            yield from _peaks(folder.rsplit("/", 3)[-3], texts[rundir.MEMORY])


def measured_findings(context: Context, layout: Layout) -> tuple[Finding, ...]:
    """What earlier runs of the family held where they needed most, a finding a role; none where there was no such run.

    It is a warning where the corrected estimate does not fit the card. A cluster that is away has nothing to say.
    """
    if layout.hardware.on_cpu:
        return ()
    try:
        peaks = list(family_peaks(context, layout))
    except ClusterError:
        return ()
    if not peaks:
        return ()
    estimate = estimate_layout(layout)
    found = corrections(estimate, peaks)
    highest = {each.role: each for each in sorted(found, key=lambda each: each.corrected_gib)}
    capacity = {role.role: role.capacity_gib for role in estimate.roles}
    return tuple(
        Finding(
            code=MEASURED,
            severity="warning" if each.corrected_gib > (capacity[role] or math.inf) else "note",
            key=f"roles.{role}",
            message=f"measured {each.measured.measured_gib:.1f} GiB in run {each.measured.run}, estimate "
            f"{each.measured.expected_gib:.1f} ({each.moment}); as far off, this takes {each.corrected_gib:.1f} GiB of "
            f"{f'{size:.1f}' if (size := capacity[role]) else 'each card'}, not {each.estimate_gib:.1f}",
        )
        for role, each in highest.items()
    )


def _is_like(layout: Layout, text: str) -> bool:
    if layout.hardware.gpu not in text or layout.roles.learner.model not in text:
        return False  # without reading it, which of hundreds takes seconds
    try:
        return same_family(layout, load_text(text, rundir.LAYOUT).layout)
    except LayoutError:  # of another version of rltui
        return False


def _peaks(run: str, text: str) -> list[Peak]:
    try:
        return list(peaks_of(run, json.loads(text)))
    except (ValueError, KeyError, TypeError, AttributeError):  # cut off while it was written, or of another version
        return []


def role_memory(context: Context, run: RunSummary) -> tuple[RoleMemory, ...]:
    """The most that each role was estimated to take of a card; none of what has no layout, card or known model."""
    letters = {name: letter for letter, name in ROLE_NAMES.items()}
    try:
        estimate = estimate_roles(load_attempt_layout(context.cluster.client, attempt_path(run)).layout)
    except RltuiError:  # a script, another version's layout, a cluster that is away: what is held is shown all the same
        return ()
    return tuple(
        RoleMemory(letter=letters[name], moment=role.peak.moment, estimated_gib=role.peak_gib)
        for role in estimate.roles
        if (name := KINDS.get(role.role, role.role)) in letters and role.verdict != "unknown"
    )
