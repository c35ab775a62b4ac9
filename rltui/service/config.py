"""Every setting of an attempt: its value, where it comes from, and what it was in the attempt before or another run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from rltui.cluster.relay_client import RelayClient
from rltui.errors import RltuiError
from rltui.importers.slurm_lines import SlurmJob, read_slurm
from rltui.layout.diff import flat
from rltui.layout.origins import DEFAULT, origin_of
from rltui.layout.schema import Layout
from rltui.layout.secret_words import MASK, is_secret_name, masked
from rltui.layout.settings import Slurm
from rltui.onnode import rundir
from rltui.runs.directory import attempt_numbers, load_attempt_layout, read_origins
from rltui.runs.script_job import LARGEST, ScriptJob, Work, read_script_job
from rltui.service.attempts import at_attempt
from rltui.service.context import Context
from rltui.service.describe import attempt_path
from rltui.watch.snapshots import RunSummary

UNRECORDED = "where the settings come from was not written down when this run was launched"


class Setting(Struct, frozen=True, kw_only=True):
    """One setting; ``value`` is None where it has none here."""

    key: str
    value: Any
    origin: str
    before: Any = None
    """What it is in what it is held against."""
    differs: bool = False
    """Whether it is another there."""


class RunConfig(Struct, frozen=True, kw_only=True):
    """All settings of an attempt, in the order of the layout's sections."""

    run_id: str
    attempt: int
    settings: tuple[Setting, ...]
    against: str = ""
    """What they are held against, such as ``attempt 1``; empty: nothing."""
    notes: tuple[str, ...] = ()


def read_config(
    context: Context, run: RunSummary, attempt: int = 0, other: tuple[Context, RunSummary] | None = None
) -> RunConfig:
    """The settings of ``run``.

    Args:
        context: Its cluster.
        run: The run.
        attempt: Which of its attempts; 0: the one that it is at.
        other: A run to hold it against, with its cluster; None: the attempt before, if there is one.

    Raises:
        UsageError: It has no such attempt.
        LayoutError: Its layout is not one that this version reads.
    """
    client = context.cluster.client
    row = at_attempt(client, run, attempt) if attempt else run
    if not row.attempt:
        raise RltuiError(f"{run.run_id} has no attempt yet.")
    work = read_work(client, attempt_path(row))
    before, against = _held_against(client, row, other)
    settings, notes = _settings(client, attempt_path(row), work)
    known = {one.key for one in settings}
    joined = [_joined(one, before) if against else one for one in settings]
    joined += [
        Setting(key=key, value=None, origin="", before=value, differs=True)
        for key, value in before.items()
        if key not in known
    ]
    shown = tuple(_without_secrets(one) for one in joined)
    return RunConfig(run_id=row.run_id, attempt=row.attempt, settings=shown, against=against, notes=notes)


def read_work(client: RelayClient, path: str) -> Work:
    """What the attempt in the folder ``path`` does.

    Raises:
        LayoutError: Its layout is not one that this version reads.
    """
    script = read_script_job(client, path)
    return script if script is not None else load_attempt_layout(client, path).layout


def layout_of_work(client: RelayClient, path: str, work: Work) -> Layout:
    """The layout of what the attempt in the folder ``path`` does; of a script, the one that its command comes to.

    Raises:
        RltuiError: The script, or what it runs, cannot be read so far.
    """
    if not isinstance(work, ScriptJob):
        return work
    from rltui.service.script_asks import meaning_of

    text = client.read(f"{path}/{work.script}", 0, LARGEST).data.decode("utf-8", "replace") if work.script else ""
    report = meaning_of(text, work).report
    if report is None or report.loaded is None:
        raise RltuiError(f"{work.source} does not say enough of what it trains, and on which cards.")
    return report.loaded.layout


def settings_of(work: Work) -> dict[str, Any]:
    """All keys of a layout, defaults filled in, or of a script's job, by dotted name."""
    told = msgspec.to_builtins(work)
    if isinstance(work, ScriptJob):
        kept = {name: told[name] for name in ("dialect", "source", "words", "folder", "hardware", "slurm")}
        told = {**kept, "dialect": work.dialect.name}
    return flat(told)


def _held_against(
    client: RelayClient, row: RunSummary, other: tuple[Context, RunSummary] | None
) -> tuple[Mapping[str, Any], str]:
    """The settings of another run, or of the attempt before, and its name; nothing where there is none."""
    if other is not None:
        there, run = other
        return _values(there.cluster.client, attempt_path(run)), run.run_id
    earlier = [number for number in attempt_numbers(client, row.path) if number < row.attempt]
    if not earlier:
        return {}, ""
    try:
        before = _values(client, rundir.attempt_folder(row.path, earlier[-1]))
    except RltuiError:  # written by another version of rltui, or never finished
        return {}, ""
    return before, f"attempt {earlier[-1]}"


def _values(client: RelayClient, path: str) -> dict[str, Any]:
    """The settings of the attempt in the folder ``path`` by key, a script's lines and words among them."""
    return {one.key: one.value for one in _settings(client, path, read_work(client, path))[0]}


def _joined(one: Setting, before: Mapping[str, Any]) -> Setting:
    then = before.get(one.key)
    return Setting(key=one.key, value=one.value, origin=one.origin, before=then, differs=then != one.value)


def _without_secrets(one: Setting) -> Setting:
    return structs.replace(one, value=_shown(one.key, one.value), before=_shown(one.key, one.before))


def _shown(key: str, value: Any) -> Any:
    """A value as it may be shown: of a key that is named so, and of words that look so, a mask."""
    if isinstance(value, list):
        return [_shown(key, item) for item in value]
    if not isinstance(value, str) or not value:
        return value
    return MASK if is_secret_name(key.rpartition(".")[2]) else masked(value)


def _settings(client: RelayClient, path: str, work: Work) -> tuple[list[Setting], tuple[str, ...]]:
    """The settings of an attempt with where they come from, and what else there is to say."""
    known = read_origins(client, path)
    if isinstance(work, ScriptJob):
        return list(_of_script(client, path, work, known)), (f"a script of {work.dialect.summary}, run as it is",)
    values = settings_of(work)
    if known:
        return [Setting(key=key, value=value, origin=origin_of(key, known)) for key, value in values.items()], ()
    return [Setting(key=key, value=value, origin="not recorded") for key, value in values.items()], (UNRECORDED,)


def _of_script(client: RelayClient, path: str, job: ScriptJob, known: Mapping[str, str]) -> Iterator[Setting]:
    """What a script's job takes: its ``#SBATCH`` lines as they stand, appended words, and what was made of them."""
    name = Path(job.source).name
    text = client.read(f"{path}/{job.script}", 0, LARGEST).data.decode("utf-8", "replace") if job.script else ""
    asked = read_slurm(text)
    yield Setting(key="dialect", value=job.dialect.name, origin="recognised in the script")
    yield Setting(key="source", value=job.source, origin="launch")
    yield Setting(key="folder", value=job.folder, origin="launch")
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#SBATCH"):
            yield Setting(key=f"#SBATCH line {number}", value=line[7:].strip(), origin=f"{name}:{number}")
    for number, word in enumerate(job.words, 1):
        named = job.words[number - 2].lstrip("-") if number > 1 and job.words[number - 2].startswith("-") else ""
        value = MASK if "=" not in named and is_secret_name(named) else word
        yield Setting(key=f"word {number}", value=value, origin="appended to the script's own")
    yield from _of_job(job, asked, known)


def _of_job(job: ScriptJob, asked: SlurmJob, known: Mapping[str, str]) -> Iterator[Setting]:
    """What the job asks for: by the words of who launched it, by the script's lines, or as is usual."""
    usual = flat({"slurm": msgspec.to_builtins(Slurm())})
    nodes = asked.nodes if "nodes" in asked.options else None  # without the line it is one, by nobody's word
    said = {"nodes": nodes, "gpus_per_node": asked.gpus_per_node, "gpu": asked.gpu or None}
    for section, values in (("hardware", job.hardware), ("slurm", job.slurm)):
        for key, value in flat(msgspec.to_builtins(values)).items():
            from_lines = said.get(key) if section == "hardware" else asked.settings.get(f"slurm.{key}")
            name, origin = f"{section}.{key}", "launch, or the cluster's profile"
            if from_lines is not None and str(from_lines) == str(value):
                origin = "#SBATCH lines"
            elif usual.get(name) == value:
                origin = DEFAULT
            yield Setting(key=name, value=value, origin=known.get(name, origin))
