"""Samples that other systems write: where their scripts say, in the words of their dialects."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rltui.cluster.relay_types import RelayError
from rltui.dialects.load import load_dialects
from rltui.runs.script_job import LARGEST
from rltui.service.scripts import command_values, one_spelling
from rltui.watch.samples import Fields, SampleFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.cluster.relay_client import RelayClient
    from rltui.runs.script_job import ScriptJob


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
