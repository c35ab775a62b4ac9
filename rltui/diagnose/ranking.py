"""From matches to diagnoses: one for each cause, causes before consequences, remedies as the evidence allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from msgspec import Struct

from rltui.diagnose.cause import Cause
from rltui.diagnose.first_exception import STATE as TRACEBACK
from rltui.diagnose.first_exception import exception_order
from rltui.diagnose.index import CAUSES
from rltui.diagnose.matches import Matches, Verdict, surest
from rltui.diagnose.verdicts import SURE_ENOUGH, Diagnosis, Evidence, Remedy
from rltui.diagnose.wording import ENDED

MOST_EVIDENCE = 4
LATE_LINES = 300
"""Processes write at the same time: a consequence may be printed this many lines before its cause."""

LEAST_CONFIDENCE = 0.4
EXPLAINING = 0.62
"""A cause that is less sure than this stands beside others and explains none of them away, unless only its kind is
open (``ENDED``)."""

NAMING = 0.5
"""A cause as sure as this says more than a wrapper, which never says why."""

TIME_LIMIT = "slurm_time_limit"

_TIERS = ("site", "root", "effect", "aside", "wrapper")


class Candidate(Struct, frozen=True):
    """A cause with its verdict, before it is weighed against others."""

    cause: Cause
    verdict: Verdict
    has_raised: bool = False
    """Whether an exception of it ended a process."""

    @property
    def first(self) -> int:
        """Order of the earliest line."""
        return min(match.order for match in self.verdict.matches)

    @property
    def sources(self) -> set[int]:
        """Indices of the sources with evidence."""
        return {match.source for match in self.verdict.matches}


def rank(matches: Matches) -> tuple[Diagnosis, ...]:
    """Return the diagnoses that ``matches`` amount to, causes first; empty where nothing is wrong."""
    fatal = {exception_order(one) for one in matches.of(TRACEBACK) if "survived" not in one.fields}
    candidates = [found for cause in CAUSES.values() if (found := _candidate(cause, matches, fatal)) is not None]
    secondary = {found.cause.id for found in candidates if any(explains(other, found) for other in candidates)}
    if len(secondary) == len(candidates) > 0:  # three may explain each other in a ring
        secondary.discard(min(candidates, key=lambda found: _rank(found, is_secondary=False)).cause.id)
    ranked = sorted(candidates, key=lambda found: _rank(found, found.cause.id in secondary))
    return tuple(_diagnosis(found, found.cause.id in secondary) for found in ranked)


def _candidate(cause: Cause, matches: Matches, fatal: Set[int]) -> Candidate | None:
    own = matches.of(cause.id)
    verdict = cause.weigh(own, matches) if cause.weigh else surest(own)
    if verdict is None or verdict.confidence < LEAST_CONFIDENCE:
        return None
    return Candidate(cause, verdict, any(match.order in fatal for match in verdict.matches))


def explains(one: Candidate, other: Candidate) -> bool:
    """Whether ``other`` is a consequence of ``one``, as far as kind and order tell."""
    if one is other:
        return False
    if other.cause.tier == "wrapper" and one.cause.tier in ("site", "root"):
        return one.verdict.confidence >= NAMING
    if one.verdict.confidence < EXPLAINING and ENDED not in one.verdict.fields:
        return False
    if other.cause.id in one.cause.explains or _held_up(one, other):
        return True
    if one.cause.id in other.cause.explains:
        return False
    tier, lesser = one.cause.tier, other.cause.tier
    if lesser == "wrapper":  # of two frameworks that pass it on, the first is the nearer one
        return tier != "wrapper" or _before(one, other)
    if tier in ("aside", "wrapper", "effect"):
        return lesser == "aside" and tier == "effect"
    if lesser == "aside":
        return True
    if lesser == "effect":
        return tier == "site" or _not_after(one, other)
    return tier == "site" and lesser == "root" and _before(one, other)


def _held_up(one: Candidate, other: Candidate) -> bool:
    """Whether the job only waited for its time limit: one of its processes had failed shortly before."""
    is_root = one.cause.tier == "root" and one.has_raised
    return is_root and other.cause.id == TIME_LIMIT and _before(one, other) and other.first - one.first <= LATE_LINES


def _not_after(one: Candidate, other: Candidate) -> bool:
    return one.first <= other.first + LATE_LINES or not one.sources & other.sources


def _before(one: Candidate, other: Candidate) -> bool:
    return one.first < other.first and bool(one.sources & other.sources)


def _rank(found: Candidate, is_secondary: bool) -> tuple[bool, bool, int, int]:
    unsure = found.verdict.confidence < SURE_ENOUGH
    return (is_secondary, unsure, _TIERS.index(found.cause.tier), found.first)


def _diagnosis(found: Candidate, is_secondary: bool) -> Diagnosis:
    cause, verdict = found.cause, found.verdict
    evidence = _evidence(verdict)
    fields = {**_whereabouts(evidence), **verdict.fields}
    return Diagnosis(
        id=cause.id,
        confidence=round(verdict.confidence, 2),
        summary=cause.summary(fields),
        secondary=is_secondary,
        evidence=evidence,
        remedies=cause.remedies_for(fields) if verdict.confidence >= SURE_ENOUGH else (_collect(cause),),
    )


def _evidence(verdict: Verdict) -> tuple[Evidence, ...]:
    """The most telling line, then the earliest others that say something different."""
    chosen: dict[str, Evidence] = {}
    first, *rest = verdict.matches
    for match in (first, *sorted(rest, key=lambda one: one.order)):
        chosen.setdefault(match.evidence.text, match.evidence)
    return tuple(list(chosen.values())[:MOST_EVIDENCE])


def _whereabouts(evidence: Sequence[Evidence]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in evidence:
        for name in ("node", "gpu", "rank"):
            value = getattr(one, name)
            if value:
                found.setdefault(name, value)
    return found


def _collect(cause: Cause) -> Remedy:
    wanted: Iterable[str] = cause.collect or ("the log from its beginning", "the logs of all ranks and nodes")
    return Remedy(
        id="collect-more", summary=f"Collect more before changing anything: {'; '.join(wanted)}.", safe="auto"
    )
