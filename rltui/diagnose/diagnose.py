"""The door of this room: sources in, diagnoses out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.diagnose.first_exception import first_exception
from rltui.diagnose.general import general_cause
from rltui.diagnose.going_on import forget_earlier_starts, settle
from rltui.diagnose.guesses import guess
from rltui.diagnose.index import CAUSES
from rltui.diagnose.kind import PROGRAM
from rltui.diagnose.nearest import nearest
from rltui.diagnose.ranking import rank
from rltui.diagnose.scan import Scanner
from rltui.diagnose.verdicts import SURE_ENOUGH

if TYPE_CHECKING:
    from rltui.diagnose.matches import Match
    from rltui.diagnose.sources import Source
    from rltui.diagnose.verdicts import Diagnosis


class Findings(Struct, frozen=True):
    """What is wrong, causes first and consequences after them, and the first exception where that says too little."""

    diagnoses: tuple[Diagnosis, ...]
    first_exception: Match | None = None
    at_rest: tuple[str, ...] = ()
    """What is seen of a live run that makes no steps, where nothing is known to be wrong with it."""
    ends: tuple[bytes, ...] = ()
    """The ends of the logs, where nothing was found, or no more than an error that may be anything."""

    @property
    def nearest(self) -> tuple[str, ...]:
        """Ids of the causes that ``ends`` are nearest to by their words; no diagnosis."""
        return nearest(self.ends)


def examine(sources: Iterable[Source]) -> Findings:
    """Read ``sources``; where nothing was found but wrappers, the first exception says what they passed on."""
    scanner = Scanner()
    for source in sources:
        scanner.scan(source)
    forget_earlier_starts(scanner.matches, scanner.last_lines)
    settle(scanner.matches)
    diagnoses = rank(scanner.matches)
    # what a run suffered from while it went on does not say what ended it either, and a guess says too little
    if any(_says_why(one) for one in diagnoses):
        return Findings(_with_root(scanner, diagnoses))
    first = first_exception(scanner.matches)
    if not any(_is_guess(one) for one in diagnoses):
        general = general_cause(scanner.matches) or (None if diagnoses or first else guess(scanner.matches))
        if general is not None:
            scanner.matches.note(general)
            diagnoses = rank(scanner.matches)
    is_open = all(one.id == PROGRAM and one.confidence < SURE_ENOUGH for one in diagnoses if not one.secondary)
    return Findings(diagnoses, first, ends=tuple(scanner.ends) if is_open else ())


def _with_root(scanner: Scanner, diagnoses: tuple[Diagnosis, ...]) -> tuple[Diagnosis, ...]:
    """What ranks see of one that is gone follows from what that one raised, of an unknown kind only if before them."""
    if any(CAUSES[one.id].tier in ("site", "root") for one in diagnoses):
        return diagnoses
    general = general_cause(scanner.matches)
    if general is None or (general.cause == PROGRAM and not _is_first(general, diagnoses, scanner)):
        return diagnoses
    scanner.matches.note(general)
    return rank(scanner.matches)


def _is_first(general: Match, diagnoses: Iterable[Diagnosis], scanner: Scanner) -> bool:
    """Whether a program's own error stands with its source line before all that others say of the end."""
    others = [match for one in diagnoses for match in scanner.matches.of(one.id)]
    is_before = all(general.order < match.order and general.source == match.source for match in others)
    return general.confidence >= SURE_ENOUGH and is_before


def _says_why(found: Diagnosis) -> bool:
    cause = CAUSES[found.id]
    return cause.tier != "wrapper" and not cause.word and found.confidence >= SURE_ENOUGH


def _is_guess(found: Diagnosis) -> bool:
    cause = CAUSES[found.id]
    return cause.tier not in ("wrapper", "aside") and not cause.word


def diagnose(sources: Iterable[Source]) -> tuple[Diagnosis, ...]:
    """Return what is wrong according to ``sources``, causes first and consequences after them; empty: nothing."""
    return examine(sources).diagnoses
