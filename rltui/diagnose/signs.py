"""How a symptom is recognised: a literal anchor for speed, a pattern for certainty, a small predicate for context."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from rltui.diagnose.lines import Line
    from rltui.diagnose.spots import Spot
    from rltui.diagnose.verdicts import Evidence


STATES = frozenset({
    "engine_exit_line", "engine_work_done", "failed_end", "nan_metric", "nccl_loaded", "nccl_position", "nccl_system",
    "ray_head_reached", "step_created", "step_waiting", "thread_limit", "training_done", "wandb_back", "xid_halted",
})  # fmt: skip
"""What signs may stand for besides causes: no causes themselves, but causes take them into account."""


class Reading(Struct, frozen=True):
    """What a predicate makes of a match: how sure, of which cause where not the sign's own, and with what details."""

    confidence: float
    cause: str = ""
    fields: dict[str, str] = {}


class Found(Struct, frozen=True):
    """A match of a sign's pattern, with the lines around it."""

    groups: dict[str, str]
    """The pattern's named groups that took part."""
    spot: Spot


Check: TypeAlias = Callable[[Found], "Reading | None"]


class Sign(Struct, frozen=True, kw_only=True):
    """One way in which systems word one cause.

    Attributes:
        cause: Id of the cause, or of a state (``STATES``) that causes take into account.
        anchor: Literal in lower case, found in every line that the pattern can match.
        words: One of these stands as a whole word (a run of letters, in lower case) in every such line; the scan looks
            for them first. Empty: the longest word of the anchor.
        pattern: Regular expression on the cleaned line; empty where the anchor says it all. Case matters unless it
            starts with ``(?i)``.
        unless: Regular expression; a line that it matches is no sign.
        confidence: How far this line alone speaks for the cause.
        check: Looks at the match in its context; None from it means "no sign".
    """

    cause: str
    anchor: str
    words: tuple[str, ...] = ()
    pattern: str = ""
    unless: str = ""
    confidence: float = 0.9
    check: Check | None = None


class Sighting(Struct, frozen=True, kw_only=True):
    """One line at which one sign was seen."""

    cause: str
    confidence: float
    evidence: Evidence
    order: int
    """Position among all lines of all sources, in the order in which they were read."""
    source: int
    """Index of the source."""
    fields: dict[str, str] = {}


def signs(cause: str, *entries: tuple[str, ...] | str, confidence: float = 0.9, unless: str = "") -> tuple[Sign, ...]:
    """Return signs of ``cause`` from bare anchors, or from tuples of anchor, pattern and words (in one string)."""
    rows = [(entry, "", "") if isinstance(entry, str) else (*entry, "", "")[:3] for entry in entries]
    return tuple(
        Sign(
            cause=cause,
            anchor=anchor,
            words=tuple(words.split()),
            pattern=pattern,
            unless=unless,
            confidence=confidence,
        )
        for anchor, pattern, words in rows
    )


def key_words(sign: Sign) -> tuple[str, ...]:
    """Return the words by which the scan finds candidates for ``sign``: any of them."""
    return sign.words or (max(anchor_words(sign), key=len),)


def anchor_words(sign: Sign) -> frozenset[str]:
    """Return the words that a line must have, all of them, for ``sign`` to be possible."""
    return frozenset() if sign.words else frozenset(re.findall("[a-z]+", sign.anchor))


_COUNTS = re.compile(r"\\d|\{\d*,?\d*\}")


def depends_on_digits(sign: Sign) -> bool:
    """Whether particular digits decide: of two lines that differ in their numbers only one may then match."""
    return "(?P=" in sign.pattern or _has_digits(sign.anchor, sign.pattern)


@lru_cache(maxsize=4096)
def _has_digits(anchor: str, pattern: str) -> bool:
    return any(letter.isdigit() for letter in _COUNTS.sub("", anchor + pattern))


@lru_cache(maxsize=4096)
def _letters(anchor: str) -> tuple[str, ...]:
    return tuple(re.findall("[a-z]+", anchor))


def is_possible(sign: Sign, lowered: str, text: str) -> bool:
    """Whether ``sign`` may match lines like ``text`` (in lower case: ``lowered``) that have other numbers."""
    if depends_on_digits(sign):
        return all(letters in lowered for letters in _letters(sign.anchor))
    return sign.anchor in lowered and (not sign.pattern or compiled(sign.pattern).search(text) is not None)


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile ``pattern`` when it is first needed: all of them at start-up would take longer than most scans."""
    return re.compile(pattern)


def _is_excused(unless: re.Pattern[str], line: Line) -> bool:
    """Whether ``unless`` matches the line, as it is or with the level that its logger gave it put before it."""
    return bool(unless.search(line.text) or (line.level and unless.search(f"{line.level} {line.text}")))


def seen(sign: Sign, spot: Spot) -> Reading | None:
    """Return what ``sign`` makes of the line at ``spot``, whose anchor is known to be there."""
    text = spot.line.text
    if sign.unless and _is_excused(compiled(sign.unless), spot.line):
        return None
    groups: dict[str, str] = {}
    if sign.pattern:
        match = compiled(sign.pattern).search(text)
        if match is None:
            return None
        groups = {name: value for name, value in match.groupdict().items() if value is not None}
    if sign.check is None:
        return Reading(sign.confidence, sign.cause, groups)
    reading = sign.check(Found(groups, spot))
    if reading is None:
        return None
    return Reading(reading.confidence, reading.cause or sign.cause, {**groups, **reading.fields})
