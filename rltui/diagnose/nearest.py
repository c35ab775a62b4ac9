"""Which causes a log is nearest to by its words, where no wording, no kind of exception and no complainer says why.

A cause's title, how to tell it, its wordings and its rows of ``kinds.py`` are taken for text about it: words and pairs
of words, rare ones weighing more. A log's complaints are held against each cause's text by the angle between them. That
needs no training and no data beside the wordings. It says where to look, and is no diagnosis: with each repository's
own wordings held out (``tests/truth/why_folds.py``) half of what it puts first is right.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from math import fsum, log, sqrt
from typing import NamedTuple

from rltui.diagnose.index import CAUSES, RULES
from rltui.diagnose.kind import PROGRAM
from rltui.diagnose.kinds import KINDS
from rltui.diagnose.lines import clean

MOST_NAMED = 3
LEAST_LIKENESS = 0.07
"""Below it a log has hardly a telling word in common with any cause."""

LINES_AROUND = 4
"""How many lines before and after a complaint are read with it."""

_COMPLAINS = re.compile(
    r"(?i)error|fail|fatal|exception|cannot|could not|couldn't|unable|kill|died|dead|signal|timed ?out|not found|"
    r"mismatch|invalid|exit ?code|abort|refus|warn|assert|exceed|out of|insufficient|missing|no such|unsupported|lost|"
    r"denied|undefined|unexpected|not enough|too (?:large|long|many|old|small)|larger than|no available|"
    r"preempt|pending|retry|stopped"
)
_FAILS = re.compile(
    r"(?i)\b(?:\w*error|fatal|failed|failure|\w*exception|traceback|killed|aborted|core dumped|died|signal \d+|denied|"
    r"exit(?:ed|code| code| status)|cannot|can't|could not|unable to|no such|not enough|refused|too long|timeout)\b"
)
_WARNS = re.compile(r"(?i)\b(?:warn(?:ing)?|info|debug|note)\b|\w*Warning\b")
"""What a line calls itself that says of no failure: of a log without any other complaint nothing is said."""

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|(?<![\d.])-?\d{1,3}(?![\d.])")
_SYNTAX = re.compile(r"\(\?P<\w+>|\(\?(?:[a-z]+|[a-z]*:|<?[=!])|\\[A-Za-z]|\{[\d,]*\}|[\\^$*+?\[\]()|]")
"""What is no text in a regular expression."""


class Known(NamedTuple):
    """What all causes' texts amount to.

    ``rarity``: the weight of a word. ``shares``: by word, how much of each cause's text it makes, by the cause's id.
    """

    rarity: dict[str, float]
    shares: dict[str, dict[str, float]]


def terms(text: str) -> set[str]:
    """Return the words of each line, small numbers among them (signals, exit codes, errno), and neighbours in pairs."""
    found: set[str] = set()
    for line in text.splitlines():
        words = [word.lower() for word in _WORD.findall(line[:1500])]
        found.update(words, map(" ".join, pairwise(words)))
    return found


def _texts() -> Iterator[tuple[str, str]]:
    yield from ((cause.id, f"{cause.title}\n{cause.tell}") for cause in CAUSES.values())
    for cause, wording, _ in RULES:
        yield cause, f"{wording.anchor}\n{_SYNTAX.sub(' ', wording.pattern)} {' '.join(wording.words)}"
    for kind in KINDS:
        yield kind.cause, "\n".join(_SYNTAX.sub(" ", each) for each in (kind.message, kind.frames, kind.exceptions))


@cache
def known() -> Known:
    """Return what all causes' texts amount to; those of runs that go on, and the general one, are left out."""
    wanted = {cause.id for cause in CAUSES.values() if not cause.word and cause.id != PROGRAM}
    texts = [(cause, found) for cause, text in _texts() if cause in wanted and (found := terms(text))]
    having = Counter(term for _, found in texts for term in found)
    rarity = {term: log(len(texts) / count) for term, count in having.items()}
    sums: dict[str, dict[str, float]] = {cause: defaultdict(float) for cause in wanted}
    for cause, found in texts:
        length = _length(rarity[term] for term in found)
        for term in found:
            sums[cause][term] += rarity[term] / length
    shares: dict[str, dict[str, float]] = defaultdict(dict)
    for cause, weights in sums.items():
        length = _length(weights.values())
        for term, weight in weights.items():
            shares[term][cause] = weight / length
    return Known(rarity, shares)


def _length(weights: Iterable[float]) -> float:
    return sqrt(fsum(weight * weight for weight in weights)) or 1.0


def nearest(logs: Iterable[bytes]) -> tuple[str, ...]:
    """Return the ids of up to three causes that the complaints in ``logs`` are nearest to, the nearest first."""
    complaints = [_complaints(log) for log in logs]
    if not any(_FAILS.search(line) and not _WARNS.search(line) for text in complaints for line in text.splitlines()):
        return ()
    rarity, shares = known()
    found = {term for text in complaints for term in terms(text) if term in rarity}
    length = _length(rarity[term] for term in found)
    likeness: dict[str, float] = defaultdict(float)
    for term in sorted(found):
        for cause, share in shares[term].items():
            likeness[cause] += share * rarity[term] / length
    best = sorted(likeness, key=lambda cause: (-likeness[cause], cause))[:MOST_NAMED]
    return tuple(cause for cause in best if likeness[cause] >= LEAST_LIKENESS)


def in_words(causes: Sequence[str]) -> Iterator[str]:
    """Yield the lines for people: that these are no more than near, each with its title."""
    if causes:
        yield "If it failed: by its words alone, it is nearest to (`rltui explain` tells more)"
    for cause in causes:
        yield from textwrap.wrap(f"{cause}: {CAUSES[cause].title}", 80, initial_indent="  · ", subsequent_indent="    ")


def _complaints(log: bytes) -> str:
    """The lines of ``log`` that sound as if something was wrong, and those around them."""
    lines = [clean(line, 1).text for line in log.split(b"\n")]
    wanted = {
        near
        for number, line in enumerate(lines)
        if _COMPLAINS.search(line)
        for near in range(max(0, number - LINES_AROUND), min(len(lines), number + LINES_AROUND + 1))
    }
    return "\n".join(lines[number] for number in sorted(wanted))
