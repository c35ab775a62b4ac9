"""Reports for other programs: SARIF 2.1.0 for code scanning, the commands of GitHub's runners, and JUnit's XML."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import rltui
from rltui.check.catalog import RULES
from rltui.check.findings import Finding
from rltui.check.run import Report

_GITHUB = {"error": "error", "warning": "warning", "note": "notice"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_OTHER = {
    "L001": "The file is not a layout that can be read.",
    "L002": "No layout can be made of a script, so the rules about layouts were not asked.",
}


def as_sarif(reports: Sequence[Report]) -> dict[str, Any]:
    """All findings as one SARIF run; ``level`` has the same three words as our severities."""
    findings = [finding for report in reports for finding in report.findings]
    codes = sorted({finding.code for finding in findings})
    driver = {"name": "rltui", "version": rltui.__version__, "rules": [_rule(code) for code in codes]}
    results = [_result(finding, codes) for finding in findings]
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _rule(code: str) -> dict[str, Any]:
    rule = RULES.get(code)
    title = rule.title if rule else _OTHER.get(code, "")
    described: dict[str, Any] = {"id": code, "shortDescription": {"text": title}}
    if rule and rule.story:
        described["fullDescription"] = {"text": " ".join(rule.story.split())}
    return described


def _result(finding: Finding, codes: list[str]) -> dict[str, Any]:
    location = {
        "artifactLocation": {"uri": quote(os.fsencode(finding.file))},
        "region": {"startLine": max(1, finding.line)},
    }
    return {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": finding.severity,
        "message": {"text": _sentence(finding)},
        "locations": [{"physicalLocation": location}],
    }


def _sentence(finding: Finding) -> str:
    key = f"{finding.key}: " if finding.key else ""
    fix = f" (fix: {' '.join(finding.fix)})" if finding.fix else ""
    return f"{key}{finding.message}{fix}"


def as_github(reports: Sequence[Report]) -> Iterator[str]:
    """Lines that GitHub's runners turn into annotations: ``::error file=…,line=…,title=P101::…``."""
    for report in reports:
        for finding in report.findings:
            place = f"file={_property(finding.file)},line={max(1, finding.line)},title={finding.code}"
            yield f"::{_GITHUB[finding.severity]} {place}::{_escaped(_sentence(finding))}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def as_junit(reports: Sequence[Report], *, strict: bool) -> str:
    """A test case for each file; it fails by its errors, if ``strict`` by warnings too, and prints the rest."""
    suite = ElementTree.Element("testsuite", name="rltui check", tests=str(len(reports)), errors="0", skipped="0")
    for report in reports:
        case = ElementTree.SubElement(suite, "testcase", classname="rltui check", name=_xml(report.file), time="0")
        failing = [one for one in report.findings if one.severity == "error" or (strict and one.severity == "warning")]
        if failing:
            failure = ElementTree.SubElement(case, "failure", message=_xml(_sentence(failing[0])), type=failing[0].code)
            failure.text = "\n".join(map(_line, failing))
        if rest := [one for one in report.findings if one not in failing]:
            ElementTree.SubElement(case, "system-out").text = "\n".join(map(_line, rest))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    whole = ElementTree.Element("testsuites")
    whole.append(suite)
    ElementTree.indent(whole)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(whole, encoding="unicode")


def _line(finding: Finding) -> str:
    place = f"{finding.file}:{finding.line}" if finding.line else finding.file
    return _xml(f"{place}: {finding.severity} {finding.code}: {_sentence(finding)}")


def _xml(text: str) -> str:
    """``text`` without the characters that XML cannot hold."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)
