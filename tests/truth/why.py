"""What ``rltui why`` is worth on logs of other people's runs: ``why_cases.txt``, each excerpt with class and thread.

The classes are those of ``docs/diagnoses.md``; the first cause counts. Whoever has a diagnosis of their own can read
the same file and print the same figures.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from score import Figure, Score

from rltui.diagnose.diagnose import examine
from rltui.diagnose.nearest import HEALTHY
from rltui.diagnose.sources import text_source
from rltui.diagnose.verdicts import SURE_ENOUGH

CASES = Path(__file__).with_name("why_cases.txt")


class Case(NamedTuple):
    """An excerpt, its class (``healthy`` where nothing failed), and the thread that it is from."""

    cause: str
    thread: str
    text: str


class Answer(NamedTuple):
    """A case and the causes found for it, first ones first; ``sure`` has those above the threshold for remedies.

    ``nearest``: those that its words are nearest to, where it has no cause, or only an error of no known kind.
    """

    case: Case
    causes: tuple[str, ...]
    sure: tuple[str, ...]
    nearest: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether the first cause is the case's, or a healthy log was left alone."""
        return not self.sure if self.case.cause == HEALTHY else self.causes[:1] == (self.case.cause,)


def cases() -> list[Case]:
    """Return all cases."""
    return read_cases(CASES)


def read_cases(path: Path) -> list[Case]:
    """Return the cases in the file ``path``; ``@@ class | thread`` begins each."""
    found: list[Case] = []
    for part in path.read_text(encoding="utf-8").split("\n@@ ")[1:]:
        head, _, text = part.partition("\n")
        cause, _, thread = head.partition(" | ")
        found.append(Case(cause, thread, text))
    return found


def answer(case: Case) -> Answer:
    """Return what is found in the case's excerpt."""
    findings = examine([text_source("log", case.text)])
    found = [one for one in findings.diagnoses if not one.secondary]
    sure = tuple(one.id for one in found if one.confidence >= SURE_ENOUGH)
    return Answer(case, tuple(one.id for one in found), sure, findings.nearest)


def recall_by_class(answers: list[Answer]) -> dict[str, tuple[int, int]]:
    """Return how many cases of each class are right, and how many there are."""
    by_class: dict[str, list[bool]] = defaultdict(list)
    for one in answers:
        if one.case.cause != HEALTHY:
            by_class[one.case.cause].append(one.is_right)
    return {cause: (sum(rights), len(rights)) for cause, rights in sorted(by_class.items())}


def score() -> Score:
    """Return recall as the mean over classes, precision of the first sure cause, and alarms on healthy logs."""
    answers = [answer(case) for case in cases()]
    classes = recall_by_class(answers)
    recall = 100 * sum(right / of for right, of in classes.values()) / len(classes)
    firsts = [one for one in answers if one.sure]
    precision = 100 * sum(one.sure[0] == one.case.cause for one in firsts) / len(firsts)
    healthy = [one for one in answers if one.case.cause == HEALTHY]
    alarms = 100 * sum(not one.is_right for one in healthy) / len(healthy)
    wrong = [(one.case.thread, f"{one.case.cause}, found {one.causes}") for one in answers if not one.is_right]
    failing = sum(of for _, of in classes.values())
    return Score(
        predictor="why",
        figures=(
            Figure(f"recall, mean of {len(classes)} classes (%)", recall, 100.0, True, failing),
            Figure("precision of the first cause (%)", precision, 100.0, True, len(firsts)),
            Figure("alarms on healthy logs (%)", alarms, 0.0, False, len(healthy)),
        ),
        worst=tuple(wrong),
    )
