"""The table of measured and estimated memory that ``rltui show RUN --memory`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rltui.cli.output import columns

HEADER = ("role", "moment", "process", "torch", "reserved", "estimated", "off")


def lines(document: Mapping[str, Any]) -> Iterator[str]:
    """``memory.json`` as a table: the highest of each kind of role, in GiB.

    Replicas and ranks of a kind do the same work, and the estimate is that of the fullest of them.
    """
    estimate = document["estimate"]
    rows = [row for kind, moments in _by_kind(document["roles"]).items() for row in _rows(kind, moments, estimate)]
    yield from columns(HEADER, rows, right=frozenset(range(2, len(HEADER))))
    on_card = any(row[3] != "-" for row in rows)
    yield "GiB; torch: tensors on the card, which is what the estimate is compared with (without the CUDA context)"
    if not on_card:
        yield "No card was used: a process holds its interpreter and libraries (about 0.5 GiB) besides the model."
    yield from estimate["notes"]


def _by_kind(roles: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """The highest of each number, by kind of role and moment."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for role in roles:
        moments = found.setdefault(role["kind"], {})
        for moment, peak in role["moments"].items():
            highest = moments.setdefault(moment, {})
            for name, size in peak.items():
                highest[name] = max(size, highest.get(name, 0.0))
    return found


def _rows(
    kind: str, moments: Mapping[str, Mapping[str, float]], estimate: Mapping[str, Any]
) -> Iterator[tuple[str, ...]]:
    expected = estimate["roles"].get(kind, {})
    for moment, peak in moments.items():
        torch, planned = peak.get("allocated_gib"), expected.get(moment, {}).get("torch_gib")
        off = f"{(planned - torch) / torch:+.0%}" if torch and planned is not None else "-"
        sizes = (peak.get("resident_gib"), torch, peak.get("reserved_gib"), planned)
        yield (kind, moment, *("-" if size is None else f"{size:.2f}" for size in sizes), off)
