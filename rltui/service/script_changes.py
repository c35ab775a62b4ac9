"""Starting a run of another system again: with appended words, other nodes, and from its newest checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import structs

from rltui.errors import UsageError
from rltui.layout.roles import Hardware
from rltui.layout.settings import Slurm
from rltui.onnode import script_resume

if TYPE_CHECKING:
    from rltui.onnode.script_resume import Checkpoint
    from rltui.runs.script_job import ScriptJob
    from rltui.service.context import Context

Section = TypeVar("Section", Hardware, Slurm)
SECTIONS = ("slurm", "hardware")
"""Parts of a layout that a script's job has too."""

LAYOUT_SECTIONS = frozenset({"roles", "lengths"})
"""Parts of a layout whose keys are no words of any system that rltui knows."""


def excluding(known: Sequence[str], nodes: Sequence[str]) -> str:
    """The override that keeps a job away from ``nodes``, beside those that it keeps away from already."""
    return f"slurm.exclude=[{', '.join(dict.fromkeys([*known, *nodes]))}]"


def changed_script(before: ScriptJob, overrides: Sequence[str]) -> ScriptJob:
    """``before`` with a change: ``slurm.…=`` and ``hardware.…=`` change the job, all other words are appended.

    Raises:
        UsageError: Words cannot be appended, or a setting is none.
    """
    settings = [word for word in overrides if word.partition(".")[0] in SECTIONS]
    words = tuple(_own(before, word) for word in overrides if word not in settings)
    if words and not before.passes_words:
        raise no_words(before, words[0])
    after = structs.replace(
        before,
        words=(*before.words, *words),
        hardware=changed_section(before.hardware, "hardware", settings),
        slurm=changed_section(before.slurm, "slurm", settings),
    )
    problems = problems_of(after)
    if problems and after.hardware != before.hardware:
        raise UsageError(problems[0])
    return after


def no_words(job: ScriptJob, word: str) -> UsageError:
    """Why ``word`` cannot be appended to a script, and how it can be."""
    return UsageError(
        f"{Path(job.source).name} does not hand its arguments on, so {word} would not reach the training.",
        'Put "$@" at the end of the command that trains, and resubmit with --script FILE, the edited script.',
    )


def _own(job: ScriptJob, word: str) -> str:
    """A word for the script: its own as it is, a layout's key in the system's words."""
    key = word.partition("=")[0]
    if key.partition(".")[0] not in LAYOUT_SECTIONS:
        return word
    own = job.dialect.own_words(word)
    if not own:
        raise UsageError(
            f"{key} is a key of layouts, and rltui knows no word of {job.dialect.name} for it.",
            f"It knows: {', '.join(job.dialect.words) or 'none'}. Words of its own are handed on as they are.",
        )
    return own


def resumed(job: ScriptJob, newest: Checkpoint | None) -> tuple[ScriptJob, str]:
    """``job`` with the system's own words for going on from its newest checkpoint, and a sentence about it.

    Args:
        job: The job of the attempt before.
        newest: Its newest complete checkpoint; None where none was found.
    """
    resume, script = job.dialect.resume, Path(job.source).name
    if newest is None:
        return (job, "starts at step 0: no complete checkpoint was found") if job.checkpoints else _unknown(job)
    if not resume.possible:
        return job, f"starts anew unless {script} goes on by itself: {job.dialect.name} needs {resume.demands}"
    if newest.torn and not resume.words_at:
        return job, f"cannot go on as {newest.torn} is torn: write {newest.step} into it, which is surely complete"
    told = msgspec.to_builtins(resume)
    words = script_resume.resume_words(told, newest)
    if not job.passes_words and not set(words) <= set(job.words):
        return job, f'goes on only if {script} has {" ".join(words)}: it does not hand arguments on ("$@")'
    by = f" by {' '.join(words)}" if words else ""
    why = f", as {newest.torn} is torn" if newest.torn else ""
    demands = f", with {resume.demands}" if resume.demands else ""
    after = structs.replace(job, words=tuple(script_resume.with_resume(job.words, told, newest)))
    return after, f"goes on from step {newest.step}{by}{why}{demands}"


def _unknown(job: ScriptJob) -> tuple[ScriptJob, str]:
    """``job`` where nobody can tell whether there is a checkpoint: with words that do no harm if there is none."""
    told = msgspec.to_builtins(job.dialect.resume)
    words = script_resume.resume_words(told, None)
    nobody_knows = "where it keeps checkpoints is not known"
    if not words or not job.passes_words:
        return job, f"goes on if {Path(job.source).name} does so by itself: {nobody_knows}"
    demands = f", with {job.dialect.resume.demands}" if job.dialect.resume.demands else ""
    after = structs.replace(job, words=tuple(script_resume.with_resume(job.words, told, None)))
    return after, f"goes on by {' '.join(words)}{demands}, if there is a checkpoint: {nobody_knows}"


def newest_checkpoint(context: Context, job: ScriptJob) -> Checkpoint | None:
    """The newest complete checkpoint of a script's run; None where there is none, or nobody can tell."""
    told, client = msgspec.to_builtins(job), context.cluster.client
    folder = script_resume.folder_of(told)
    if not folder:
        return None

    def files(pattern: str) -> dict[str, str]:
        return {file.path: file.text or "" for file in client.collect(folder, [pattern], 4096)}

    def names(inside: str) -> list[str]:
        return [entry.name for entry in client.list(f"{folder}/{inside}".rstrip("/"))]

    return script_resume.newest_checkpoint(folder, told["dialect"]["checkpoints"], files, names)


def typed(text: str) -> Any:
    """The value of a ``key=value`` word, typed as in YAML; what is none, such as ``@x`` or ``[a``, is text."""
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):  # a day such as 2026-13-01 is a ValueError
        return text


def changed_section(section: Section, name: str, settings: Sequence[str]) -> Section:
    """A section of a layout with those of ``key.path=value`` words that are about it."""
    values = msgspec.to_builtins(section)
    for word in settings:
        key, equals, value = word.partition("=")
        part, _, field = key.partition(".")
        if part != name:
            continue
        field, _, inner = field.partition(".")
        place = values.get(field) if inner else values
        key = inner or field
        if not equals or not isinstance(place, dict) or key not in place:
            raise UsageError(f"{word} is no setting of a script's job.", f"{name} has: {', '.join(values)}.")
        place[key] = typed(value) if not isinstance(place[key], str) else value
    try:
        return msgspec.convert(values, type(section))
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: {error}.") from error


def problems_of(job: ScriptJob) -> list[str]:
    """Why the job cannot work, whatever the system does."""
    given = 0 if job.hardware.on_cpu else job.hardware.nodes * job.hardware.gpus_per_node
    if job.needed_gpus is not None and given and job.needed_gpus > given:
        return [f"its roles need {job.needed_gpus} GPUs, and {given} are asked for."]
    return []
