"""Diagnoses in the form that the `!` screen shows: a headline, evidence to jump to, remedies that can be applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rltui.diagnose.first_exception import as_json
from rltui.diagnose.nearest import in_words
from rltui.diagnose.verdicts import SURE_ENOUGH, Diagnosis, Remedy
from rltui.service.cockpit import WhyFinding, WhyRemedy, WhyReport
from rltui.service.why import nothing_found

if TYPE_CHECKING:
    from rltui.diagnose.diagnose import Findings
    from rltui.service.attempt_differences import Differences
    from rltui.watch.snapshots import RunSummary

EXCLUDE = "slurm.exclude"


def why_report(
    run: RunSummary, found: Findings, different: Differences | None = None, unfinished: str = ""
) -> WhyReport:
    """Return the answer to `!` for ``run`` from what was diagnosed, causes first.

    Args:
        run: The run.
        found: Its diagnoses, and the first exception where they say too little.
        different: What is different since the last attempt that went well.
        unfinished: What was to follow the attempt and did not.
    """
    first = as_json(found.first_exception) if found.first_exception is not None else None
    return WhyReport(
        run_id=run.run_id,
        headline=_headline(run, found),
        findings=tuple(_finding(one) for one in found.diagnoses),
        exception=(str(first["file"]), int(str(first["line"])), str(first["text"])) if first is not None else None,
        notes=(
            *filter(None, [unfinished]),
            *(_frames(first) if first is not None else ()),
            *in_words(found.nearest),
            *(different.in_words() if different else ()),
        ),
    )


def _frames(first: Mapping[str, object]) -> tuple[str, ...]:
    frames = first["frames"]
    return tuple(f"    {frame}" for frame in frames) if isinstance(frames, list) else ()


def _headline(run: RunSummary, found: Findings) -> str:
    causes = [one for one in found.diagnoses if not one.secondary]
    if causes:
        return causes[0].summary if causes[0].confidence >= SURE_ENOUGH else f"Not sure: {causes[0].summary}"
    return nothing_found(run, at_rest=found.at_rest)


def _finding(diagnosis: Diagnosis) -> WhyFinding:
    fixes = tuple(remedy_words(one) for one in diagnosis.remedies)
    best = next((one for one in fixes if one.overrides or one.exclude), None)
    return WhyFinding(
        diagnosis=diagnosis.id,
        summary=diagnosis.summary,
        confidence=diagnosis.confidence,
        is_secondary=diagnosis.secondary,
        evidence=tuple((one.file, one.line, one.text) for one in diagnosis.evidence),
        remedies=tuple(one.summary for one in fixes),
        overrides=best.overrides if best else (),
        exclude=best.exclude if best else (),
        fixes=fixes,
    )


def remedy_words(remedy: Remedy) -> WhyRemedy:
    """Return a remedy with its changes as words that a resubmission takes."""
    others = tuple(change for change in remedy.changes if change.key != EXCLUDE)
    fitted = all(change.operation == "set" for change in others)
    return WhyRemedy(
        id=remedy.id,
        summary=remedy.summary,
        # a change that is not in the layout's own numbers is no override
        overrides=tuple(f"{change.key}={_value(change.value)}" for change in others) if fitted else (),
        shown=tuple(change.own for change in others if change.own),
        exclude=tuple(node for change in remedy.changes if change.key == EXCLUDE for node in _nodes(change.value)),
        commands=remedy.commands,
        safe=remedy.safe,
    )


def _value(value: bool | int | float | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nodes(value: object) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in str(value).strip("[]").split(","))))
