"""Diagnoses as text for people and as JSON for scripts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from rltui.diagnose.cause import Cause
from rltui.diagnose.index import CAUSES
from rltui.diagnose.verdicts import SURE_ENOUGH, Diagnosis, Evidence, Remedy

WIDTH = 80
LONGEST_QUOTE = 300

SAFETY_WORDS = {"auto": "may be applied at once", "confirm": "needs your consent", "never": "for you to do"}


def as_text(diagnoses: Sequence[Diagnosis]) -> Iterator[str]:
    """Lines for people: the cause in one sentence, its evidence, what to do, and then what else was seen."""
    causes = [one for one in diagnoses if not one.secondary]
    for number, diagnosis in enumerate(causes):
        if number:
            yield ""
        yield from _cause_lines(diagnosis)
    others = [one for one in diagnoses if one.secondary]
    # what a run suffers from while it goes on is no consequence of what ends it
    suffered = [one for one in others if not causes or CAUSES[one.id].word]
    for title, seen in (
        ("Also seen, as a consequence:", [one for one in others if one not in suffered]),
        ("Seen while it ran:", suffered),
    ):
        if seen:
            yield from [""] * bool(causes)
            yield title
        for diagnosis in seen:
            yield from _wrapped(f"{diagnosis.id}: {diagnosis.summary}{_place(diagnosis)}", "  · ")


def _cause_lines(diagnosis: Diagnosis) -> Iterator[str]:
    mark = "✗ " if diagnosis.confidence >= SURE_ENOUGH else "? Perhaps: "
    yield from _wrapped(f"{mark}{diagnosis.summary}", "", "  ")
    yield f"  {diagnosis.id}, confidence {diagnosis.confidence:.2f}; `rltui explain {diagnosis.id}` tells more"
    for evidence in diagnosis.evidence:
        yield f"  {_where(evidence)}{_whose(evidence)}"
        yield from _wrapped(_cut(evidence.text), "    ")
    if diagnosis.remedies:
        yield "  What to do:"
    for number, remedy in enumerate(diagnosis.remedies, start=1):
        yield from _remedy_lines(number, remedy)


def _remedy_lines(number: int, remedy: Remedy) -> Iterator[str]:
    yield from _wrapped(_with_safety(remedy), f"  {number}. ", "     ")
    for change in remedy.changes:
        yield f"       {change.shown}"
    for command in remedy.commands:
        yield f"       $ {command}"


def _where(evidence: Evidence) -> str:
    return f"{evidence.file}:{evidence.line}" if evidence.line else evidence.file


def _whose(evidence: Evidence) -> str:
    named = {"rank": evidence.rank, "actor": evidence.actor, "pid": evidence.pid, "on": evidence.node}
    words = [f"{name} {value}" for name, value in (*named.items(), ("GPU", evidence.gpu)) if value]
    if evidence.repeated > 1:
        words.append(f"repeated {evidence.repeated} times")
    return f" ({', '.join(words)})" if words else ""


def _place(diagnosis: Diagnosis) -> str:
    return f" ({_where(diagnosis.evidence[0])})" if diagnosis.evidence else ""


def _with_safety(remedy: Remedy) -> str:
    """The remedy's sentence, and how far it may be applied where there is anything to apply."""
    if remedy.safe == "auto" and not remedy.changes:  # commands without risk: `rltui fix` has no hands for them
        return f"{remedy.summary} ({SAFETY_WORDS['never']})" if remedy.commands else remedy.summary
    return f"{remedy.summary} ({SAFETY_WORDS[remedy.safe]})"


def _wrapped(text: str, first: str, rest: str | None = None) -> list[str]:
    rest = " " * len(first) if rest is None else rest
    return textwrap.wrap(  # paths and addresses stay whole, to be copied
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"


def as_json(diagnoses: Sequence[Diagnosis]) -> dict[str, Any]:
    """The JSON form, ``{"schema": 1, "diagnoses": […]}``, causes first."""
    return {"schema": 1, "diagnoses": [_diagnosis(one) for one in diagnoses]}


def _diagnosis(diagnosis: Diagnosis) -> dict[str, Any]:
    word = CAUSES[diagnosis.id].word
    return {
        "id": diagnosis.id,
        **({"word": word} if word else {}),
        "confidence": diagnosis.confidence,
        "secondary": diagnosis.secondary,
        "summary": diagnosis.summary,
        "evidence": [_evidence(one) for one in diagnosis.evidence],
        "remedies": [_remedy(one) for one in diagnosis.remedies],
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    known = {name: getattr(evidence, name) for name in ("rank", "actor", "pid", "node", "gpu", "time")}
    place = {"file": evidence.file, "line": evidence.line, "text": evidence.text}
    return {**place, **{name: value for name, value in known.items() if value}}


def _remedy(remedy: Remedy) -> dict[str, Any]:
    return {
        "id": remedy.id,
        "summary": remedy.summary,
        "set": {change.key: change.in_words for change in remedy.changes},
        **({"words": own} if (own := [change.own for change in remedy.changes if change.own]) else {}),
        "commands": list(remedy.commands),
        "safe": remedy.safe,
    }


def story(cause_id: str) -> list[str]:
    """The page of ``rltui explain``: cause, how to tell, what helps, what does not, sources.

    Raises:
        KeyError: No cause has this id.
    """
    cause = CAUSES[cause_id]
    lines = [f"{cause.id}: {cause.title}.", ""]
    lines += ["How to tell", *_wrapped(cause.tell, "  "), ""]
    lines += ["What helps", *(line for remedy in _all_remedies(cause) for line in _helping(remedy)), ""]
    if cause.wrong:
        lines += ["What does not", *(line for words in cause.wrong for line in _wrapped(words, "  - ")), ""]
    if cause.collect:
        lines += ["Where to look", *(line for words in cause.collect for line in _wrapped(words, "  - ")), ""]
    return [*lines, "Sources", *(f"  {source}" for source in cause.sources)]


def _helping(remedy: Remedy) -> Iterator[str]:
    yield from _wrapped(_with_safety(remedy), "  - ")
    yield from (f"      {change.shown}" for change in remedy.changes)
    yield from (f"      $ {command}" for command in remedy.commands)


_VARIANTS: tuple[dict[str, str], ...] = (
    {},
    {"allocator": "yes"},
    {"fragmented": "yes", "bucket": "yes"},
    {"threads": "yes"},
    {"news": "yes"},
)
"""Details of evidence on which remedies depend."""


def _all_remedies(cause: Cause) -> list[Remedy]:
    """What may be offered for the cause, whatever the evidence, each once."""
    found: dict[str, Remedy] = {}
    for fields in _VARIANTS:
        for remedy in cause.remedies_for(fields):
            found.setdefault(remedy.id, remedy)
    return list(found.values())
