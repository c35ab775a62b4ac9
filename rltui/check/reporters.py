"""Reports as text for people and as JSON for scripts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rltui.placement.result import as_json as placement_json

if TYPE_CHECKING:
    from rltui.check.findings import Finding
    from rltui.check.run import Report

GLYPHS = {"error": "✗", "warning": "▲", "note": "·"}


def as_text(report: Report) -> Iterator[str]:
    """Lines for people: the verdict, the findings with their fixes, the picture and the arithmetic."""
    yield _verdict(report)
    for finding in report.findings:
        yield from _finding_lines(finding)
    if report.loaded:
        yield ""
        yield from (f"  {line}" for line in (*report.drawing, "", *report.arithmetic_lines))


def _verdict(report: Report) -> str:
    counts = {kind: sum(finding.severity == kind for finding in report.findings) for kind in GLYPHS}
    parts = [f"{number} {kind}{'s' if number != 1 else ''}" for kind, number in counts.items() if number]
    if not report.readable:
        return f"✗ {report.file}: {', '.join(parts)} before anything could be checked"
    read_as = f" (read as {report.framework})" if report.framework else ""
    return f"{'✓' if report.ok else '✗'} {report.file}{read_as}: {', '.join(parts) or 'no findings'}"


def _finding_lines(finding: Finding) -> Iterator[str]:
    place = f"{finding.file}:{finding.line}: " if finding.line else ""
    key = f"{finding.key}: " if finding.key else ""
    yield f"  {GLYPHS[finding.severity]} {finding.code} {place}{key}{finding.message}"
    if finding.fix:
        yield f"      fix: {shlex.join(finding.fix)}"


def as_json(reports: Sequence[Report]) -> dict[str, Any]:
    """The JSON form, ``{"schema": 1, "files": […]}``."""
    return {"schema": 1, "files": [_file(report) for report in reports]}


def _file(report: Report) -> dict[str, Any]:
    return {
        "file": report.file,
        "ok": report.ok,
        "framework": report.framework or None,
        "findings": [msgspec.to_builtins(finding) for finding in report.findings],
        "placement": placement_json(report.placement),
        "arithmetic": msgspec.to_builtins(report.arithmetic),
    }
