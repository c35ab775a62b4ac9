"""Why a run died: causes with their evidence and remedies, as lines of which some lead somewhere. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rltui.diagnose.verdicts import Diagnosis, Remedy
from rltui.service.cockpit import WhyReport
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import BLANK, Line, Role, Span, clip, line, rule, wrapped
from rltui.tui.views.parts import log_role

SURE, LIKELY = 0.85, 0.6
"""Confidence from which a cause is called sure, and likely."""

APPLIES, BY_HAND = "can be applied", "for you to do"


class WhyLine(NamedTuple):
    """One line, and where it leads.

    Attributes:
        line: What it says.
        stop: Whether the cursor rests on it.
        finding: Number of the finding that it is about; -1 for none.
        evidence: (file, line number) that it quotes.
        fix: The remedy that it offers.
    """

    line: Line
    stop: bool = False
    finding: int = -1
    evidence: tuple[str, int] | None = None
    fix: Remedy | None = None

    @property
    def can_open(self) -> bool:
        """Whether enter does something here."""
        return self.evidence is not None or (self.fix is not None and self.fix.can_apply)


def why_lines(report: WhyReport, width: int, glyphs: Glyphs) -> list[WhyLine]:
    """The headline, the first exception where no cause is known, then each finding, causes first."""
    lines = [WhyLine(row) for row in wrapped(report.headline, width, " ", "title")]
    if report.exception is not None:
        file, at, text = report.exception
        lines.append(WhyLine(BLANK))
        lines.append(WhyLine(line((" the first exception, out of its wrappers:", "dim"))))
        place = (file, at) if at else None
        lines.append(WhyLine(_evidence(file, at, text, width, glyphs), stop=True, evidence=place))
    for note in report.notes:
        lines.extend(
            WhyLine(row) for row in wrapped(note.strip(), width, "   " + " " * (len(note) - len(note.lstrip())), "dim")
        )
    for number, finding in enumerate(report.findings):
        lines.append(WhyLine(BLANK))
        lines.extend(_finding(number, finding, report.headline, width, glyphs))
    if lines:
        lines[-1] = lines[-1]._replace(stop=True)
    return lines


def _finding(number: int, finding: Diagnosis, headline: str, width: int, glyphs: Glyphs) -> Iterator[WhyLine]:
    yield WhyLine(_head(finding, width, glyphs), stop=True, finding=number)
    if finding.summary != headline:
        for row in wrapped(finding.summary, width, "   ", "text"):
            yield WhyLine(row, finding=number)
    for one in finding.evidence:
        # line 0: it is the word of a stage, a sample or the scheduler, no log's
        place = (one.file, one.line) if one.line else None
        if place is None and _is_told(one.text, headline):
            continue
        row = _evidence(one.file, one.line, one.text, width, glyphs)
        yield WhyLine(row, stop=True, finding=number, evidence=place)
    for fix in finding.remedies:
        yield from _fix(number, fix, width, glyphs)


def _is_told(text: str, headline: str) -> bool:
    """Whether the headline has the words of an evidence, which may stand behind the name of what was looked for."""
    words = text.strip().rstrip(".")
    return words in headline or (words.partition(": ")[2] or words) in headline


def _head(finding: Diagnosis, width: int, glyphs: Glyphs) -> Line:
    mark: Span = (f"{glyphs.dot} ", "dim") if finding.secondary else (f"{glyphs.failed} ", "bad")
    words = "a consequence" if finding.secondary else confidence_word(finding.confidence)
    return rule([mark, (finding.id, "title")], [(words, "dim")], width, glyphs)


def confidence_word(confidence: float) -> str:
    """How sure a cause is, in a word."""
    return "sure" if confidence >= SURE else "likely" if confidence >= LIKELY else "not sure"


def _evidence(file: str, at: int, text: str, width: int, glyphs: Glyphs) -> Line:
    place = clip(f"{file}:{at}" if at else file, max(8, width - 24), glyphs.ellipsis)
    room = max(0, width - len(place) - 5)
    return line((f"   {place}  ", "accent"), (clip(text.strip(), room, glyphs.ellipsis), log_role(text)))


def _fix(number: int, fix: Remedy, width: int, glyphs: Glyphs) -> Iterator[WhyLine]:
    mark: Span = (f"   {glyphs.arrow} ", "ok" if fix.can_apply else "dim")
    role: Role = "text" if fix.can_apply else "dim"
    rows = wrapped(f"{fix.summary} ({APPLIES if fix.can_apply else BY_HAND})", width, "", role, mark=mark)
    for index, row in enumerate(rows):
        yield WhyLine(row, stop=index == 0, finding=number, fix=fix if index == 0 else None)
    for words in _changes(fix):
        for row in wrapped(words, width, "       ", "accent"):
            yield WhyLine(row, finding=number)
    for command in fix.commands:
        for index, row in enumerate(wrapped(command, width, "", "dim", mark=("       $ ", "dim"))):
            yield WhyLine(row, stop=index == 0, finding=number)


def _changes(fix: Remedy) -> Sequence[str]:
    return (*(fix.in_own_words or fix.overrides), *(f"keeps away from {node}" for node in fix.exclude))
