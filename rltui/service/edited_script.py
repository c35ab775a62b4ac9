"""A script that its user has edited since the launch, for the next attempt of its run."""

from __future__ import annotations

from difflib import ndiff
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from rltui.check.findings import Finding
from rltui.cluster.profile import Profile
from rltui.errors import UsageError
from rltui.paths import is_file, with_home
from rltui.runs.script_job import ScriptJob
from rltui.service.script_changes import SECTIONS, no_words, problems_of
from rltui.service.scripts import Prepared, prepare_text, read_script
from rltui.service.wishes import Wishes

FROM_THE_LAUNCH = ("name", "words", "folder", "pythonpath", "deadlines")
"""What a run keeps, whatever its script says now."""


class Edited(Struct, frozen=True):
    """A script of a run.

    Attributes:
        job: The job that it is.
        text: The script, byte for byte.
        lines: Its lines that are not those of the attempt before, a ``-`` and a ``+`` line each.
        findings: What a check says of it that it did not say before.
    """

    job: ScriptJob
    text: bytes
    lines: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def edited(before: ScriptJob, text: bytes, source: str, profile: Profile) -> Edited:
    """The script ``source`` in the place of ``text``: what it says anew holds, and else what the launch said.

    Args:
        before: The job of the attempt before.
        text: Its script.
        source: The edited script, on this machine.
        profile: The cluster.

    Raises:
        UsageError: It cannot be read, does not hand on the run's words, or its roles need more GPUs than there are.
    """
    path = with_home(source)
    changed = read_script(path)
    wishes, was = _read_before(before, text, profile)
    now = prepare_text(changed, path, wishes, profile)
    job = _merged(before, was.job, now.job)
    if job.words and not job.passes_words:
        raise no_words(job, job.words[0])
    if problems := problems_of(job):
        raise UsageError(problems[0])
    known = {(one.code, one.message) for one in was.findings}
    return Edited(
        job=job,
        text=changed,
        lines=tuple(line for line in ndiff(_lines(text), _lines(changed)) if line[0] in "-+"),
        findings=tuple(one for one in now.findings if (one.code, one.message) not in known),
    )


def newer_words(job: ScriptJob, text: bytes) -> str:
    """That the script has changed where it was launched from, if this machine has it; else nothing."""
    path = Path(job.source)
    try:
        differs = path.is_absolute() and is_file(path) and path.read_bytes() != text
    except OSError:
        return ""
    return f"; {path} has changed since it was launched: --script {path} takes it as it is now" if differs else ""


def _read_before(before: ScriptJob, text: bytes, profile: Profile) -> tuple[Wishes, Prepared]:
    """The script of the attempt before, with the number of GPUs where the launch gave another one than it does."""
    wishes, path, gpus = Wishes(words=before.words, folder=before.folder), Path(before.source), _gpus(before)
    try:
        was = prepare_text(text, path, wishes, profile)
        if _gpus(was.job) == gpus:
            return wishes, was
    except UsageError:  # it does not say how many it takes
        pass
    wishes = structs.replace(wishes, gpus_per_node=gpus)
    return wishes, prepare_text(text, path, wishes, profile)


def _gpus(job: ScriptJob) -> int:
    return 0 if job.hardware.on_cpu else job.hardware.gpus_per_node


def _merged(before: ScriptJob, was: ScriptJob, now: ScriptJob) -> ScriptJob:
    """``before`` with all in which ``now`` differs from ``was``."""
    changes: dict[str, Any] = {}
    for name in (one for one in before.__struct_fields__ if one not in FROM_THE_LAUNCH):
        old, new = getattr(was, name), getattr(now, name)
        if old != new:
            changes[name] = _merged_section(getattr(before, name), old, new) if name in SECTIONS else new
    return structs.replace(before, **changes)


def _merged_section(before: Any, was: Any, now: Any) -> Any:
    old, new = msgspec.to_builtins(was), msgspec.to_builtins(now)
    changed = {key: getattr(now, key) for key in old if old[key] != new[key]}
    return structs.replace(before, **changed)


def _lines(text: bytes) -> list[str]:
    return text.decode("utf-8", "replace").splitlines()
