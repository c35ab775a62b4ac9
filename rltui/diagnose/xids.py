"""NVIDIA's Xid numbers: which cause each stands for, and which are only news.

Numbers and meanings: https://docs.nvidia.com/deploy/xid-errors/.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rltui.diagnose.judging import surest
from rltui.diagnose.signs import Found, Reading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rltui.diagnose.causes import Overview, Verdict
    from rltui.diagnose.signs import Sighting

_CAUSES: tuple[tuple[str, frozenset[int]], ...] = (
    ("xid_79_fell_off_bus", frozenset({79})),
    ("xid_119_gsp", frozenset({119, 120})),
    ("xid_memory_ecc", frozenset({48, 63, 64, 92, 94, 95, 140, 171, 172})),
    ("xid_nvlink", frozenset({74, 137, 155, *range(144, 151)})),
    ("xid_app_fault", frozenset({8, 13, 31, 32, 43, 68, 69, 109})),
)
XID_CAUSE: Mapping[int, str] = {number: cause for cause, numbers in _CAUSES for number in numbers}

NEWS = frozenset({63, 94})
"""Recorded for repair (63) or contained in one process (94): the node may go on."""

HALTED = frozenset({61, 62})
"""The GPU's micro-controller halted: a cause where nothing came before, else a consequence."""

FOLLOWING = frozenset({45, 154})
"""45: channels torn down after another error. 154: what the driver now wants done."""


def read_xid(found: Found) -> Reading | None:
    """Return the cause of an Xid line, less sure where the number only informs; None for followers and the unknown."""
    number = int(found.groups["xid"])
    text = found.spot.line.text
    if re.search(r"(?i)non-?fatal", text):
        return None
    if number in FOLLOWING:
        return _caused_by(text)
    if number in HALTED:
        return Reading(0.7, "xid_halted")
    cause = XID_CAUSE.get(number)
    if cause is None:
        return None
    confidence = 0.65 if number in NEWS else 0.95
    return Reading(confidence, cause, {"news": "yes"} if number in NEWS else {})


def xid_119_gsp(sightings: Sequence[Sighting], overview: Overview) -> Verdict | None:
    """A firmware that stopped answering; a halt counts as one only where no other Xid came before."""
    if sightings:
        return surest(sightings)
    halts = overview.of("xid_halted")
    others = [one.order for cause, _ in _CAUSES for one in overview.of(cause)]
    return surest([halt for halt in halts if not others or halt.order < min(others)])


def _caused_by(text: str) -> Reading | None:
    match = re.search(r"caused by previous Xid (\d+)", text)
    cause = XID_CAUSE.get(int(match[1])) if match else None
    return Reading(0.8, cause) if cause else None


def read_pending_rows(found: Found) -> Reading | None:
    """``nvidia-smi -q`` says "Pending" under several headings; only rows to be remapped wait for a reset.

    Rows with nothing but corrected errors gave no wrong data, and are replaced whenever the GPU is next reset.
    """
    above = [line.text.strip() for line in found.spot.before(6)]
    if not any(text.startswith("Remapped Rows") for text in above):
        return None
    return None if any(re.match(r"Uncorrectable Error\s*: 0$", text) for text in above) else Reading(0.8)
