"""How logs word a cause: a literal anchor for speed, a pattern for certainty, a small check for the context."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from rltui.diagnose.context import Context
    from rltui.diagnose.lines import Line


STATES = frozenset({
    "alive_at_end", "engine_exit_line", "engine_work_done", "failed_end", "failure_answered", "hint",
    "nan_metric", "nccl_loaded", "nccl_package", "nccl_position", "nccl_system", "ray_head_reached", "ray_up",
    "role_restarted", "server_up", "started", "step_created", "step_waiting", "thread_limit", "traceback",
    "training_done", "wandb_back", "xid_halted",
})  # fmt: skip
"""What wordings may stand for besides causes: no causes themselves, but causes take them into account."""


ENDED = "ended"
"""Field of a reading that leaves the kind of failure open, while that the process ended of it is certain."""


ENDED_WITH = (
    r"\b(?:exit(?:ed|s)?|exit[ _-]?(?:code|status)|return[ _]?code|finished with|failed\b.{0,300}?(?<!error) code)\b"
    r".{0,24}?[ :=]"
)
"""How whoever saw a process end begins, before its code."""

BY_SIGNAL = r"(?:\b(?:exited|died|killed|terminated|ended)\b(?: \w+){0,2} |^)signal[ :=#]{1,3}"
"""The same, before the number of the signal: launchers of MPI, which wrap their lines, shells, schedulers."""

BAD_TERMINATION = r"^=\s+EXIT CODE: "
"""The same of MPICH's launcher, whose code is the signal's number where there was one."""

ENDING_WORDS = "exit exits exited exitcode exit_code returncode return_code code finished status exit_status exitstatus"
"""One of these is in every such line."""


class Reading(Struct, frozen=True):
    """What a check makes of a hit: how sure, of which cause where not the wording's own, and with what details."""

    confidence: float
    cause: str = ""
    fields: dict[str, str] = {}


class Hit(Struct, frozen=True):
    """A line that a wording's pattern matched, with the lines around it."""

    groups: dict[str, str]
    """The pattern's named groups that took part."""
    context: Context


Check: TypeAlias = Callable[[Hit], "Reading | None"]


class Wording(Struct, frozen=True, kw_only=True):
    """One way in which systems word one cause.

    Attributes:
        anchor: Literal in lower case, found in every line that the pattern can match.
        words: One of these stands as a whole word (a run of letters, in lower case) in every such line; the scan looks
            for them first. A name that ends in "error" or "exception" is that word too. Empty: the longest word of the
            anchor.
        pattern: Regular expression on the cleaned line; empty where the anchor says it all. Case matters unless it
            starts with ``(?i)``.
        unless: Regular expression; a line that it matches does not count.
        confidence: How far this line alone speaks for the cause.
        check: Looks at the match in its context; None from it means "does not count".
    """

    anchor: str
    words: tuple[str, ...] = ()
    pattern: str = ""
    unless: str = ""
    confidence: float = 0.9
    check: Check | None = None


def worded(
    *entries: tuple[str, ...] | str, confidence: float = 0.9, unless: str = "", check: Check | None = None
) -> tuple[Wording, ...]:
    """Return wordings from bare anchors, or from tuples of anchor, pattern and words (in one string)."""
    rows = [(entry, "", "") if isinstance(entry, str) else (*entry, "", "")[:3] for entry in entries]
    return tuple(
        Wording(
            anchor=anchor,
            words=tuple(words.split()),
            pattern=pattern,
            unless=unless,
            confidence=confidence,
            check=check,
        )
        for anchor, pattern, words in rows
    )


def key_words(wording: Wording) -> tuple[str, ...]:
    """Return the words by which the scan finds candidates for ``wording``: any of them."""
    return wording.words or (max(anchor_words(wording), key=len),)


def anchor_words(wording: Wording) -> frozenset[str]:
    """Return the words that a line must have, all of them, for ``wording`` to be possible."""
    return frozenset() if wording.words else frozenset(re.findall("[a-z]+", wording.anchor))


_COUNTS = re.compile(r"\\d|\{\d*,?\d*\}")


def depends_on_digits(wording: Wording) -> bool:
    """Whether particular digits decide: of two lines that differ in their numbers only one may then match."""
    return "(?P=" in wording.pattern or _has_digits(wording.anchor, wording.pattern)


@lru_cache(maxsize=4096)
def _has_digits(anchor: str, pattern: str) -> bool:
    return any(letter.isdigit() for letter in _COUNTS.sub("", anchor + pattern))


@lru_cache(maxsize=4096)
def _letters(anchor: str) -> tuple[str, ...]:
    return tuple(re.findall("[a-z]+", anchor))


def is_possible(wording: Wording, lowered: str, text: str) -> bool:
    """Whether ``wording`` may match lines like ``text`` (in lower case: ``lowered``) that have other numbers."""
    if depends_on_digits(wording):
        return all(letters in lowered for letters in _letters(wording.anchor))
    return wording.anchor in lowered and (not wording.pattern or compiled(wording.pattern).search(text) is not None)


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile ``pattern`` when it is first needed: all of them at start-up would take longer than most scans."""
    return re.compile(pattern)


def _is_excused(unless: re.Pattern[str], line: Line) -> bool:
    """Whether ``unless`` matches the line, as it is or with the level that its logger gave it put before it."""
    return bool(unless.search(line.text) or (line.level and unless.search(f"{line.level} {line.text}")))


_SUPPOSED = re.compile(
    r"(?i)\b(?:(?:can|may|might|could|would) (?:also |then |sometimes )?(?:cause|lead to|result in|trigger|raise|give)"
    r"|errors? (?:like|such as)|to (?:avoid|prevent|get rid of)|example of"
    r"|(?:in case|if|when) you (?:see|get|hit|encounter|run into))\b[^.;]*$"
)
"""Ends of what stands before an error that is only spoken of: a warning of what might come, or advice."""


_RAISES = re.compile(r"(?:raise [A-Za-z_][\w.]*\(|assert )")
_NUMBERED = re.compile(r"\d+ +(?:raise|assert|except)\b")
"""IPython shows lines around the one that failed, which has an arrow."""

_FRAME = re.compile(r"\s*File \"|❱|-+> ?\d|\S+\.py:\d+ in ")
MOST_LINES_OF_CODE = 4
"""Of one statement so many lines stand below its frame."""


_EXCEPTION = re.compile(r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception): ")


def _is_caught(line: Line) -> bool:
    """Whether a logger calls the exception in the line no more than a warning: who logs it so has caught it."""
    return line.level == "WARNING" and _EXCEPTION.match(line.text.lstrip()) is not None


def _is_listed(context: Context) -> bool:
    """Whether the line is of a program's source that the log shows: it raises something, and no frame is above it."""
    text = context.line.text.lstrip()
    if _RAISES.match(text) is None:
        return _NUMBERED.match(text) is not None
    above = [line.text for line in context.before(MOST_LINES_OF_CODE)]
    return len(above) == MOST_LINES_OF_CODE and not any(map(_FRAME.match, above))


def read(wording: Wording, context: Context) -> Reading | None:
    """Return what ``wording`` makes of the line in ``context``, whose anchor is known to be there."""
    text = context.line.text.lstrip()  # a whole log may be shown with blanks before it
    groups: dict[str, str] = {}
    if not wording.pattern:
        begins = text.lower().find(wording.anchor)
    else:
        match = compiled(wording.pattern).search(text)
        if match is None:
            return None
        begins = match.start()
        groups = {name: value for name, value in match.groupdict().items() if value is not None}
    if wording.unless and _is_excused(compiled(wording.unless), context.line):
        return None
    if begins > 0 and _SUPPOSED.search(text, 0, begins):
        return None
    if _is_caught(context.line) or _is_listed(context):
        return None
    if wording.check is None:
        return Reading(wording.confidence, fields=groups)
    reading = wording.check(Hit(groups, context))
    if reading is None:
        return None
    return Reading(reading.confidence, reading.cause, {**groups, **reading.fields})
