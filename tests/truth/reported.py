"""Mistakes in launch scripts of other systems that their users reported: what of them the check finds.

Each case of ``reported.yaml`` is an issue or a review: the settings as far as the thread shows them, and those that it
says were wrong. A mistake counts as found where an error or a warning names one of these settings; an alarm is an error
that names none of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import yaml

sys.path.insert(0, str(Path(__file__).parent))

from mistakes import written
from score import Figure, Score

from rltui.check.script import check_script_text


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reported mistake.

    Attributes:
        of: The framework.
        at: Repository and number of the thread.
        wrong: The settings of which one is to be named.
        settings: What the script sets; capitals name variables of the environment.
        also: Further settings that are wrong in it.
        command: What it starts, where that is not the framework's usual program.
    """

    of: str
    at: str
    wrong: list[str]
    settings: dict[str, object]
    also: list[str] = []
    command: str = ""


_DATA = yaml.safe_load(Path(__file__).with_name("reported.yaml").read_text(encoding="utf-8"))
REPORTS = tuple(msgspec.convert(row, Report) for row in _DATA)


def verdict(report: Report) -> tuple[bool, list[str]]:
    """Whether the mistake is found, and errors that name something else."""
    text, path = written(report.of, report.settings, report.command)
    found = [one for one in check_script_text(text, path).findings if one.severity != "note"]
    right = [one for one in found if _names(one.key, one.message, report.wrong)]
    known = [*report.wrong, *report.also]
    alarms = [one for one in found if one.severity == "error" and not _names(one.key, one.message, known)]
    return bool(right), [f"{one.code} {one.message}" for one in alarms]


def _names(key: str, message: str, settings: list[str]) -> bool:
    return any(name == key or name in message.split() for name in settings)


def score() -> Score:
    """The share of reported mistakes that are found, and of reports with an alarm."""
    verdicts = [(report, *verdict(report)) for report in REPORTS]
    missed = [report for report, found, _ in verdicts if not found]
    wrong = [(report, alarms) for report, _, alarms in verdicts if alarms]
    return Score(
        "mistakes that users of other systems reported",
        (
            Figure("mistakes found (%)", 100 * (1 - len(missed) / len(REPORTS)), 91.0, True, len(REPORTS)),
            Figure("reports with an error beside it (%)", 100 * len(wrong) / len(REPORTS), 0.0, False, len(REPORTS)),
        ),
        (
            *((f"{report.at} {report.wrong[0]}", "missed") for report in missed[:8]),
            *((report.at, alarms[0]) for report, alarms in wrong[:5]),
        ),
    )
