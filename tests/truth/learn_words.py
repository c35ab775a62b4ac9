"""Learn which words speak for which cause: ``python tests/truth/learn_words.py`` writes rltui/diagnose/words.json.

It learns from the cases of ``why.py`` and from ``written_ends.txt``: ends of logs that were written for it, by cause,
as programs word them, so that causes without published cases have words too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from math import log, sqrt
from pathlib import Path

import msgspec
from why import Case, cases, read_cases

from rltui.diagnose import nearest
from rltui.diagnose.nearest import Learned, end_of, terms

WRITTEN = Path(__file__).with_name("written_ends.txt")
WORDS = Path(nearest.__file__).with_name("words.json")

LEAST_CASES = 3
"""A word that fewer cases have says nothing of others."""

LEAST_SHARE = 0.03
"""What a word has of every cause before it was seen with it (Laplace's rule, for lengths of one)."""


@cache
def written() -> list[Case]:
    """Return the ends of logs that were written for this."""
    return read_cases(WRITTEN)


@cache
def _terms_of(text: str) -> frozenset[str]:
    return frozenset(terms(end_of(text.encode())))


def learn(known: Iterable[Case]) -> Learned:
    """Return what the words of ``known`` say, by naive Bayes over lengths of one."""
    told = [(case.cause, _terms_of(case.text)) for case in known]
    having = Counter(term for _, found in told for term in found)
    rarity = {term: round(0.3 + log(len(told) / of), 1) for term, of in having.items() if of >= LEAST_CASES}
    sums: dict[str, dict[str, float]] = {cause: defaultdict(float) for cause in sorted({cause for cause, _ in told})}
    for cause, found in told:
        weights = {term: rarity[term] for term in sorted(found & rarity.keys())}
        length = sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        for term, weight in weights.items():
            sums[cause][term] += weight / length
    usual, more = [], {term: {} for term in sorted(rarity)}
    for number, seen in enumerate(sums.values()):
        usual.append(round(log(LEAST_SHARE / (sum(seen.values()) + LEAST_SHARE * len(rarity))), 3))
        for term, share in seen.items():
            more[term][number] = round(log(1 + share / LEAST_SHARE), 1)
    return Learned(tuple(sums), tuple(usual), {term: (rarity[term], weights) for term, weights in more.items()})


def all_words() -> bytes:
    """Return what words.json has to hold: an entry a line."""
    found = learn([*cases(), *written()])
    head = msgspec.json.encode({"causes": found.causes, "usual": found.usual})[:-1]
    rows = (b"%s:%s" % (msgspec.json.encode(term), msgspec.json.encode(told)) for term, told in found.terms.items())
    return head + b',"terms":{\n' + b",\n".join(rows) + b"\n}}\n"


if __name__ == "__main__":
    WORDS.write_bytes(all_words())
