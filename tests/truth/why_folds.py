"""What ``rltui why`` is worth on logs of sources that it has no words from: one repository held out after the other.

Each wording and each kind of exception that only one repository's cases of ``why_cases.txt`` support was written for
these cases. So they are asked once more without it: what is then still named rightly does not hang on having been seen,
and what is surely named wrong shows where a guess is taken for knowledge.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from unittest import mock
from zlib import crc32

from learn_words import learn, written
from score import Figure, Score
from why import HEALTHY, Answer, answer, cases, recall_by_class

from rltui.diagnose import general, index, nearest, scan
from rltui.diagnose.wording import key_words, read

FOLDS = 6
"""What words say is learned anew so often, each time without a sixth of the sources."""

LITTLE = 0.7
"""A class of which so small a share is right without a repository's own words is named on the page."""

Supports = dict[int, set[str]]
"""The repositories whose cases a wording or a kind decides, by its identity."""


def source_of(thread: str) -> str:
    """Return the repository of a thread."""
    return thread.partition("#")[0]


def _supports() -> Supports:
    """Run all cases, and note which wordings and kinds spoke for the right cause in each repository's."""
    found: Supports = defaultdict(set)
    spoke: set[int] = set()

    def noting_read(wording: Any, context: Any) -> Any:
        reading = read(wording, context)
        if reading is not None:
            spoke.add(id(wording))
        return reading

    def noting_row(match: Any, known: Any = general._row) -> Any:
        row = known(match)
        if row is not None:
            spoke.add(id(row))
        return row

    with mock.patch.object(scan, "read", noting_read), mock.patch.object(general, "_row", noting_row):
        for case in cases():
            spoke.clear()
            if case.cause != HEALTHY and answer(case).is_right:
                for one in spoke:
                    found[one].add(source_of(case.thread))
    return found


@contextmanager
def _without(unknown: set[int], source: str) -> Iterator[None]:
    """Let ``rltui why`` know nothing of the wordings and kinds with these identities, and no words of ``source``."""
    table: dict[bytes, list[index.Rule]] = {}
    for rule in index.RULES:
        if id(rule.wording) not in unknown:
            for word in key_words(rule.wording):
                table.setdefault(word.encode(), []).append(rule)
    known = {word: tuple(rules) for word, rules in table.items()}
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(scan, "rules_by_word", return_value=known))
        kinds = tuple(kind for kind in general.KINDS if id(kind) not in unknown)
        patches.enter_context(mock.patch.object(general, "KINDS", kinds))
        patches.enter_context(mock.patch.object(nearest, "learned", return_value=_learned_without(_fold(source))))
        yield


def _fold(source: str) -> int:
    return crc32(source.encode()) % FOLDS


@cache
def _learned_without(fold: int) -> nearest.Learned:
    """What words say by the cases of all other sources."""
    return learn([*(case for case in cases() if _fold(source_of(case.thread)) != fold), *written()])


def held_out() -> list[Answer]:
    """Return the answers to all failures, each by what the cases of other repositories support."""
    supports = _supports()
    by_source = defaultdict(list)
    for case in cases():
        if case.cause != HEALTHY:
            by_source[source_of(case.thread)].append(case)
    found: list[Answer] = []
    for source, own in by_source.items():
        unknown = {one for one, sources in supports.items() if sources == {source}}
        with _without(unknown, source):
            found.extend(answer(case) for case in own)
    return found


def _is_near(one: Answer) -> bool:
    """Whether the first cause is right, or else is among those that are named for their words."""
    return one.is_right or one.case.cause in one.nearest


def score() -> Score:
    """Return recall as the mean over classes and precision of the first sure cause, each source held out."""
    answers = held_out()
    classes = recall_by_class(answers)
    recall = 100 * sum(right / of for right, of in classes.values()) / len(classes)
    firsts = [one for one in answers if one.sure]
    precision = 100 * sum(one.sure[0] == one.case.cause for one in firsts) / len(firsts)
    right = 100 * sum(one.is_right for one in answers) / len(answers)
    near = [one for one in answers if _is_near(one)]
    by_class = Counter(one.case.cause for one in near)
    near_recall = 100 * sum(by_class[cause] / of for cause, (_, of) in classes.items()) / len(classes)
    lost = [(cause, f"{right} of {of}") for cause, (right, of) in classes.items() if right < LITTLE * of]
    return Score(
        predictor="why, each repository held out",
        figures=(
            Figure("right causes (%)", right, 93.4, True, len(answers)),
            Figure(f"recall, mean of {len(classes)} classes (%)", recall, 94.8, True, len(answers)),
            Figure(
                "right causes, or among the nearest by words where none is known (%)",
                100 * len(near) / len(answers),
                95.7,
                True,
                len(answers),
            ),
            Figure("the same, mean of the classes (%)", near_recall, 96.4, True, len(answers)),
            Figure("precision of the first sure cause (%)", precision, 97.9, True, len(firsts)),
        ),
        worst=tuple(lost),
    )
