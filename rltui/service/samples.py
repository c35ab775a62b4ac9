"""The samples of a run, also of other systems: which files have them, and what to say where there are none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import Entry, RelayError
from rltui.dialects.load import load_dialects
from rltui.onnode import rundir
from rltui.runs.script_job import LARGEST, ScriptJob, read_script_job
from rltui.service.context import Context
from rltui.service.describe import attempt_path
from rltui.service.scripts import command_values, one_spelling
from rltui.watch.samples import (
    Fields,
    Sample,
    SampleFile,
    SampleGroup,
    SampleQuery,
    SamplesFound,
    find_samples,
    read_group,
)
from rltui.watch.snapshots import RunSummary

NONE_YET = "no samples yet: the trainer writes some answers of a step, at most every 10 s"
NO_EVALUATION = "no evaluation has answered yet; without data.eval in the layout there is none"


def samples_of(context: Context, run: RunSummary, query: SampleQuery) -> Iterator[SamplesFound]:
    """Search the samples of the attempt that ``run`` is at, or of the run's evaluations, piece by piece.

    Raises:
        UsageError: They cannot be ranked so.
        RelayError: The pattern cannot be read, or the cluster is away.
    """
    client = context.cluster.client
    files, note = sample_files(client, run, evaluation=query.evaluation)
    if not files:
        yield SamplesFound(note=note)
        return
    yield from find_samples(client, files, query)


def group_of(context: Context, run: RunSummary, sample: Sample, *, evaluation: bool = False) -> SampleGroup:
    """Read ``sample`` in full, with its siblings.

    Raises:
        RltuiError: It is not there any more, or the cluster is away.
    """
    files, note = sample_files(context.cluster.client, run, evaluation=evaluation)
    file = next((one for one in files if one.path == sample.path), None)
    if file is None:
        raise RelayError("missing", f"The file of this sample is gone. {note}".strip())
    return read_group(context.cluster.client, file, sample.offset, sample.length)


def sample_files(client: RelayClient, run: RunSummary, *, evaluation: bool) -> tuple[Sequence[SampleFile], str]:
    """The files with samples, the newest last; where there are none, why."""
    script = read_script_job(client, attempt_path(run)) if run.attempt else None
    if script is not None:
        return script_samples(client, attempt_path(run), script, evaluation=evaluation)
    if evaluation:
        folder = f"{run.path}/{rundir.EVALUATIONS}"
        names = [entry for entry in entries(client, folder) if entry.name.endswith(".jsonl")]
        return [SampleFile(path=f"{folder}/{one.name}", size=one.size) for one in names], NO_EVALUATION
    folder = attempt_path(run)
    own = [entry for entry in entries(client, folder) if entry.name == rundir.SAMPLES]
    return [SampleFile(path=f"{folder}/{one.name}", size=one.size) for one in own], NONE_YET


def entries(client: RelayClient, folder: str) -> Sequence[Entry]:
    """What lies in a folder; nothing where there is no such folder."""
    try:
        return client.list(folder)
    except RelayError as error:
        if error.kind not in ("missing", "denied"):
            raise
        return ()


def script_samples(
    client: RelayClient, attempt: str, job: ScriptJob, *, evaluation: bool
) -> tuple[Sequence[SampleFile], str]:
    """The files with samples of a script's run, the newest last; where there are none, why, and how there would be."""
    told = load_dialects().get(job.dialect.name, job.dialect).samples
    word = told.evaluation if evaluation else told.training
    name, system = Path(job.source).name, job.dialect.summary
    if not word:
        return (), f"rltui knows of no file of samples that {system} writes; what it prints of them is in the log"
    if not job.script:
        return (), "this run was adopted without its script, so where it writes samples is not known"
    text = client.read(f"{attempt}/{job.script}", 0, LARGEST).data.decode("utf-8", "replace")
    folder = command_values(text, Path(job.source), job.folder, job.words).get(one_spelling(word), "")
    if folder in ("", "null"):
        return (), f"{name} writes none: with {word}=FOLDER {system} writes a file a step, and they are shown here"
    folder = folder if folder.startswith(("/", "~")) else f"{job.folder or '~'}/{folder}"
    if owner := client.owner_of(attempt):
        client.confine(folder, owner)  # his script says where, which may be anywhere
    try:
        found = [entry for entry in client.list(folder) if entry.name.endswith(".jsonl")]
    except RelayError as error:
        if error.kind not in ("missing", "denied"):
            raise
        return (), f"{folder} ({word}): {'nothing is there yet' if error.kind == 'missing' else error.message}"
    found.sort(key=lambda entry: (_step(entry.name), entry.name))
    fields = msgspec.convert(told.fields, Fields)
    files = [SampleFile(path=f"{folder}/{one.name}", size=one.size, fields=fields) for one in found]
    return files, f"{folder} has no samples yet"


def _step(name: str) -> int:
    digits = re.search(r"\d+", name)
    return int(digits[0]) if digits else -1
