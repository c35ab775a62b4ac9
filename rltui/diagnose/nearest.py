"""Which causes a log is nearest to by its words, where no wording, no kind of exception and no complainer says why.

Naive Bayes over words and pairs of words, each log's rare ones weighing more (Rennie et al., 2003), learned from the
labelled failures and healthy runs of ``tests/truth`` by ``tests/truth/learn_words.py``, which writes ``words.json``
beside this file. It says where to look, and is no diagnosis: how often the cause is among those that it names, for logs
of sources that it has not learned from, stands in ``docs/truth.md``.
"""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice, pairwise
from math import exp, fsum, sqrt
from pathlib import Path

import msgspec

from rltui.diagnose.index import CAUSES
from rltui.diagnose.kind import PROGRAM
from rltui.diagnose.lines import clean

HEALTHY = "healthy"
"""What a log of a run is called in which nothing failed."""

MOST_NAMED = 3
LEAST_SHARE = 0.03
"""Below it a cause is not worth being named."""

SHARPNESS = 0.85
"""Words of one log depend on each other, which Bayes' rule does not know: with this exponent its shares are, on sources
that were held out, about as often right as they say."""

MOST_LINES = 80
"""Of a longer end only what complains is read, and ``LINES_AROUND`` lines before and after it."""
LINES_AROUND = 4

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


class Learned(msgspec.Struct, frozen=True):
    """What was learned of words.

    Attributes:
        causes: Ids of causes, ``HEALTHY`` among them.
        usual: By cause, the logarithm of the share that a word has which was never seen with it.
        terms: By word or pair of words, how rare it is, and by the number of a cause how much more its logarithm is.
    """

    causes: tuple[str, ...]
    usual: tuple[float, ...]
    terms: dict[str, tuple[float, dict[int, float]]]


@cache
def learned() -> Learned:
    """Return what was learned from all cases."""
    return msgspec.json.decode(Path(__file__).with_name("words.json").read_bytes(), type=Learned)


def terms(text: str) -> set[str]:
    """Return the words of each line, small numbers among them (signals, exit codes, errno), and neighbours in pairs."""
    found: set[str] = set()
    for line in text.splitlines():
        words = [word.lower() for word in _WORD.findall(line[:1500])]
        found.update(words, map(" ".join, pairwise(words)))
    return found


def shares(text: str) -> dict[str, float]:
    """Return how likely each cause is by the words of ``text``, together 1; empty where none of them is known."""
    known = learned()
    found = [known.terms[term] for term in sorted(terms(text)) if term in known.terms]
    if not found:
        return {}
    length = sqrt(fsum(rarity * rarity for rarity, _ in found))
    told = fsum(rarity for rarity, _ in found) / length
    sums = [told * usual for usual in known.usual]
    for rarity, more in found:
        for cause, weight in more.items():
            sums[cause] += rarity * weight / length
    best = max(sums)
    likely = [exp(SHARPNESS * (each - best)) for each in sums]
    whole = fsum(likely)
    return {cause: each / whole for cause, each in zip(known.causes, likely, strict=True)}


def nearest(logs: Iterable[bytes]) -> tuple[str, ...]:
    """Return the ids of up to three causes that ``logs`` are nearest to, by the log that says most of each.

    Only causes of a run's end are named: neither those of a run that goes on, nor an error of no known kind. A log
    that has the words of a healthy run, or no complaint, says nothing.
    """
    found: dict[str, float] = defaultdict(float)
    for log in logs:
        text = end_of(log)
        if not any(_FAILS.search(line) and not _WARNS.search(line) for line in text.splitlines()):
            continue
        likely = shares(text)
        if likely and max(likely.values()) > likely.get(HEALTHY, 0.0):
            for cause, share in likely.items():
                found[cause] = max(found[cause], share)
    told = [(-share, cause) for cause, share in found.items() if share >= LEAST_SHARE]
    named = (cause for _, cause in sorted(told) if cause not in (HEALTHY, PROGRAM) and not CAUSES[cause].word)
    return tuple(islice(named, MOST_NAMED))


def in_words(causes: Sequence[str]) -> Iterator[str]:
    """Yield the lines for people: that these are no more than near, each with its title."""
    if causes:
        yield "If it failed: by its words alone, it is nearest to (`rltui explain` tells more)"
    for cause in causes:
        yield from textwrap.wrap(f"{cause}: {CAUSES[cause].title}", 80, initial_indent="  · ", subsequent_indent="    ")


def end_of(log: bytes) -> str:
    """The text that is learned from, and asked about: all of a short ``log``, else what complains in it."""
    lines = [clean(line, 1).text for line in log.split(b"\n")]
    if len(lines) <= MOST_LINES:
        return "\n".join(lines)
    wanted = {
        near
        for number, line in enumerate(lines)
        if _COMPLAINS.search(line)
        for near in range(max(0, number - LINES_AROUND), min(len(lines), number + LINES_AROUND + 1))
    }
    return "\n".join(lines[number] for number in sorted(wanted)[-MOST_LINES:])
