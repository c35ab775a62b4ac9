"""Launch scripts that their own repositories corrected: whether the check finds what was wrong.

Each case of ``corrected.yaml`` is a commit that changed a setting because the script before was wrong: the settings
before it as far as they matter, what the commit made of them, and the settings of which one is to be named. A mistake
counts as found where an error or a warning names one of these before, and none does afterwards. The wrong settings were
written down from the commit before the check saw the script. Half ``b`` was blind until 2026-11-28, when its misses
were read, and one rule (F372) was made after one of them; 6 of its 48 were found before.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import yaml

sys.path.insert(0, str(Path(__file__).parent))

from mistakes import Settings, written
from score import Figure, Score

from rltui.check.script import check_script_text


class Correction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A commit that corrected a script.

    Attributes:
        of: The framework.
        at: Repository and commit.
        half: ``a`` where rules were made after it was seen, ``b`` where it was blind at first.
        wrong: The settings of which one is to be named.
        settings: What the script sets before; a plus before a name is Hydra's.
        corrected: What the commit changes; None where it takes a setting out.
    """

    of: str
    at: str
    half: str
    wrong: list[str]
    settings: Settings
    corrected: Settings


_DATA = yaml.safe_load(Path(__file__).with_name("corrected.yaml").read_text(encoding="utf-8"))
CORRECTIONS = tuple(msgspec.convert(row, Correction) for row in _DATA)


def verdict(one: Correction) -> tuple[bool, list[str]]:
    """Whether the mistake is found and gone afterwards, and errors that the corrected script has."""
    before = check_script_text(*written(one.of, one.settings)).findings
    merged = {**one.settings, **one.corrected}
    kept = {name: value for name, value in merged.items() if value is not None}
    after = check_script_text(*written(one.of, kept)).findings
    found = any(_names(finding.key, finding.message, one.wrong) for finding in before if finding.severity != "note")
    still = any(_names(finding.key, finding.message, one.wrong) for finding in after if finding.severity != "note")
    alarms = [f"{finding.code} {finding.message}" for finding in after if finding.severity == "error"]
    return found and not still, alarms


def _names(key: str, message: str, settings: list[str]) -> bool:
    words = {key, *message.replace(",", " ").replace(";", " ").split()}
    return any(word == name or word.startswith(f"{name}.") for name in settings for word in words)


def score() -> Score:
    """The share of mistakes that are found, of all and of the blind half, and of corrected scripts with an error."""
    verdicts = [(one, *verdict(one)) for one in CORRECTIONS]
    blind = [found for one, found, _ in verdicts if one.half == "b"]
    missed = [one for one, found, _ in verdicts if not found]
    alarms = [(one, errors) for one, _, errors in verdicts if errors]
    return Score(
        "mistakes that repositories corrected in their own scripts",
        (
            Figure("mistakes found (%)", _share([found for _, found, _ in verdicts]), 20.9, True, len(verdicts)),
            Figure("found in the half that was blind (%)", _share(blind), 14.5, True, len(blind)),
            Figure("corrected scripts with an error (%)", 100 * len(alarms) / len(verdicts), 2.4, False, len(verdicts)),
        ),
        (
            *((f"{one.at} {one.wrong[0]}", "missed") for one in missed[:8]),
            *((one.at, errors[0]) for one, errors in alarms[:5]),
        ),
    )


def _share(found: list[bool]) -> float:
    return 100 * sum(found) / len(found)
