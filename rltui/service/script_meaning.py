"""What a script's command means with the words behind it, read again: what a change of words changes, and what not."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct, structs

from rltui.check.findings import Finding
from rltui.check.run import Report
from rltui.check.script import check_script_text
from rltui.errors import RltuiError, UsageError
from rltui.hardware.gpus import find_gpu
from rltui.importers.read import Imported, import_text
from rltui.layout.diff import change_lines, diff
from rltui.layout.roles import Hardware
from rltui.runs.script_job import ScriptJob
from rltui.service.script_changes import LAYOUT_SECTIONS, problems_of


class Meaning(Struct, frozen=True):
    """A command as the importer reads it.

    Attributes:
        imported: What it asks for; None where that cannot be read.
        report: What a check says of it; None where nothing can be said.
    """

    imported: Imported | None
    report: Report | None

    def value_of(self, key: str) -> Any:
        """The value of a layout's key; None where the layout is not known."""
        found: Any = self.report.loaded.layout if self.report is not None and self.report.loaded is not None else None
        for name in key.split("."):
            found = getattr(found, name, None)
        return found


def with_arguments(text: str, path: Path, words: Sequence[str]) -> str:
    """A shell script as it reads with ``words`` behind its name; its lines keep their numbers."""
    if not words or path.suffix == ".py":
        return text
    given = f"set -- {shlex.join(words)}"
    return f"{given} {text}" if text.startswith("#") else f"{given}; {text}"


def import_of(text: str, path: Path) -> tuple[Imported | None, str]:
    """What a script asks for, and why that is not known; nothing of it is executed."""
    try:
        return import_text(text, path), ""
    except RltuiError as error:
        return None, error.message


def report_of(text: str, path: Path, hardware: Hardware) -> Report | None:
    """What a check says; None where nothing is trained on a card, or the script cannot be read."""
    if hardware.on_cpu or path.suffix == ".py":
        return None
    card = [f"hardware.gpu={hardware.gpu}"] if find_gpu(hardware.gpu) is not None else []
    report = check_script_text(text, path, given=card)
    return report if report.readable else None


def meaning_of(text: str, job: ScriptJob) -> Meaning:
    """What the script ``text`` means as ``job`` runs it."""
    path = Path(job.source)
    read = with_arguments(text, path, job.words)
    return Meaning(import_of(read, path)[0], report_of(read, path, job.hardware))


class Reading(Struct, frozen=True):
    """What a change of a script's words comes to.

    Attributes:
        job: The job with what is known now of the GPUs that it needs.
        lines: Keys of its layout that change, a ``-`` and a ``+`` line each.
        findings: What a check says that it did not say before.
    """

    job: ScriptJob
    lines: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def read_again(text: str, before: ScriptJob, after: ScriptJob, overrides: Sequence[str]) -> Reading:
    """Read the command that ``after`` runs, and hold it against that of ``before``.

    Args:
        text: The script.
        before: The job of the attempt before.
        after: The job with the change.
        overrides: The change, as it was asked for.

    Raises:
        UsageError: A word does not change what it claims, or the roles need more GPUs than there are.
    """
    if after.words == before.words:
        return Reading(after)
    old, new = meaning_of(text, before), meaning_of(text, after)
    for word in overrides:
        _require_effect(after, word, old, new)
    if new.imported is not None:
        after = structs.replace(after, needed_gpus=new.imported.needed_gpus)
    problems = problems_of(after)
    if problems and problems != problems_of(before):
        raise UsageError(f"With {' '.join(after.words[len(before.words) :])} {problems[0]}")
    if old.report is None or new.report is None or old.report.loaded is None or new.report.loaded is None:
        return Reading(after)
    lines = change_lines(diff(old.report.loaded.layout, new.report.loaded.layout))
    known = {(finding.code, finding.message) for finding in old.report.findings}
    told = [one for one in new.report.findings if (one.code, one.message) not in known and one.severity != "note"]
    return Reading(after, tuple(lines), tuple(told))


def _require_effect(job: ScriptJob, word: str, old: Meaning, new: Meaning) -> None:
    """Refuse a word that the command does not heed: the script says the same thing again behind its arguments."""
    said, equals, value = word.partition("=")
    layouts = said if said.partition(".")[0] in LAYOUT_SECTIONS else ""
    key = layouts or next((key for key, own in job.dialect.words.items() if own == said), "")
    if not key or not equals:
        return
    before, now, wanted = old.value_of(key), new.value_of(key), yaml.safe_load(value)
    if now is not None and now == before and now != wanted:
        own = job.dialect.words.get(key, said)
        raise UsageError(
            f"{own}={value} would change nothing: the command still means {key}={now}.",
            f"{Path(job.source).name} says {own} again behind its arguments, or does not hand them to what trains.",
        )
