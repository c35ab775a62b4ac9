"""What was seen: lines that word a cause, all of them together, and the common ways to weigh those of one cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.diagnose.wording import STATES

if TYPE_CHECKING:
    from rltui.diagnose.verdicts import Evidence

MOST_MATCHES = 200


class Match(Struct, frozen=True, kw_only=True):
    """One line that words one cause or state."""

    cause: str
    confidence: float
    evidence: Evidence
    order: int
    """Position among all lines of all sources, in the order in which they were read."""
    source: int
    """Index of the source."""
    fields: dict[str, str] = {}


class Matches:
    """All that was seen so far in all sources, for causes that depend on more than their own lines.

    Attributes:
        by_cause: By cause or state, oldest first; of more than ``MOST_MATCHES`` the first ones and the last.
        lines: Lines read of all sources.
        waiting_ranks: By cause, ranks that named the operation in which they waited, however many there are.
    """

    def __init__(self) -> None:
        self.by_cause: dict[str, list[Match]] = {}
        self.lines = 0
        self.waiting_ranks: dict[str, set[str]] = {}

    def note(self, match: Match) -> None:
        """Add a match; of too many of one cause the newest takes the last one's place."""
        rank = match.fields.get("rank") or match.evidence.rank
        if rank and "op" in match.fields:
            self.waiting_ranks.setdefault(match.cause, set()).add(rank)
        known = self.by_cause.setdefault(match.cause, [])
        if len(known) >= MOST_MATCHES:
            known.pop()
        known.append(match)

    def forget(self, source: int, before: int) -> None:
        """Leave out what a source said before a place among all lines."""
        for cause, found in self.by_cause.items():
            self.by_cause[cause] = [one for one in found if one.source != source or one.order >= before]

    @property
    def causes(self) -> set[str]:
        """What was seen besides states."""
        return {cause for cause, found in self.by_cause.items() if found} - STATES

    def of(self, cause: str) -> Sequence[Match]:
        """Return the matches of one cause or state, oldest first."""
        return self.by_cause.get(cause, ())


class Verdict(Struct, frozen=True, kw_only=True):
    """What the matches of one cause amount to together."""

    confidence: float
    matches: tuple[Match, ...]
    """Those that speak for it, the most telling first."""
    fields: dict[str, str] = {}


def surest(matches: Sequence[Match]) -> Verdict | None:
    """The first of the surest matches counts; the rest is further evidence. None where there is none."""
    if not matches:
        return None
    best = max(match.confidence for match in matches)
    # of equally sure lines the one with the numbers in it tells most
    first = max((match for match in matches if match.confidence == best), key=lambda match: len(match.fields))
    rest = tuple(match for match in matches if match is not first)
    return Verdict(confidence=best, matches=(first, *rest), fields=first.fields)


def unless_followed_by(matches: Sequence[Match], recoveries: Sequence[Match], same: str = "") -> tuple[Match, ...]:
    """Leave out matches after which the same source says that it recovered.

    ``same`` names a field that has to agree: what recovered has to be what had failed.
    """
    return tuple(one for one in matches if not any(_recovers(other, one, same) for other in recoveries))


def _recovers(recovery: Match, failure: Match, same: str) -> bool:
    if recovery.source != failure.source or recovery.order < failure.order:
        return False
    return not same or (same in failure.fields and failure.fields[same] == recovery.fields.get(same))
