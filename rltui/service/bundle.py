"""What there is to know of a run in trouble, as one file to attach to a bug report, without secrets."""

from __future__ import annotations

import io
import os
import tarfile
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.cluster.relay_types import RelayError
from rltui.errors import UsageError
from rltui.layout.secret_words import is_secret_name, masked
from rltui.onnode import evidence, rundir
from rltui.service.last_lines import last_lines
from rltui.service.read_evidence import ask_nodes
from rltui.watch.attempt_logs import is_log
from rltui.watch.lines import parse_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from rltui.cluster.relay_client import RelayClient
    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary

WHOLE = (
    rundir.LAYOUT, rundir.JOB, rundir.SCRIPT, rundir.SCRIPT_RUN, rundir.ADOPTED, rundir.STAGE, rundir.END, rundir.SLURM,
    rundir.PREFLIGHT, rundir.FAILURE, rundir.MEMORY, rundir.ACTORS, rundir.STATUS_NOW,
)  # fmt: skip
WITH_TOKENS = (rundir.RAY_ENDPOINT, rundir.STATUS_ENDPOINT)
TAIL_BYTES = 1 << 20
WHOLE_BYTES = 4 << 20
MOST_LOGS = 32
MOST_ANSWERS = 256


class Bundle(Struct, frozen=True):
    """One bundle.

    Attributes:
        path: The file.
        answered: Nodes that said what their processes are doing.
        silent: Nodes that were asked and did not answer.
        files: What is in it.
    """

    path: str
    answered: tuple[str, ...]
    silent: tuple[str, ...]
    files: tuple[str, ...]


def make_bundle(context: Context, run: RunSummary, target: Path, deadline_s: float = evidence.ANSWER_S) -> Bundle:
    """Ask the nodes of a live run what they are doing, and write all that is known of it into ``target``.

    Args:
        context: The run's cluster.
        run: The run, with its newest attempt.
        target: The file to make.
        deadline_s: How long to wait for the nodes.

    Raises:
        UsageError: The file cannot be written.
        ClusterError: The cluster cannot be reached.
    """
    client = context.cluster.client
    attempt = rundir.attempt_folder(run.path, run.attempt)
    silent = ask_nodes(client, attempt, "rltui bundle", deadline_s) if run.is_live else ()
    files = dict(_files(client, attempt))
    secrets = _secrets(client, attempt)
    answers = (name.removeprefix(f"{rundir.EVIDENCE}/").partition("-") for name in files if name.endswith(".json"))
    answered = sorted({host.removesuffix(".json") for number, _, host in answers if number.isdigit()})
    try:
        _write(target, run.run_id, {name: masked(text, secrets) for name, text in files.items()})
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from error
    return Bundle(str(target), tuple(answered), silent, tuple(sorted(files)))


def _files(client: RelayClient, attempt: str) -> Iterator[tuple[str, str]]:
    """Name and text of every file for the bundle; what cannot be read is left out."""
    entries = [entry for entry in client.list(attempt) if entry.type in ("file", "link")]
    names = [entry.name for entry in entries]
    for name in WHOLE:
        if name in names and (text := _tail(client, f"{attempt}/{name}", WHOLE_BYTES)):
            yield name, text
    logs = [name for name in names if is_log(name)][:MOST_LOGS]
    samples = [name for name in names if name.startswith("gpu-") and name.endswith(".jsonl")]
    events = _tail(client, f"{attempt}/{rundir.EVENTS}", TAIL_BYTES)
    yield rundir.EVENTS, events
    for name in [*logs, *samples, rundir.METRICS]:
        if name != rundir.EVENTS and (text := _tail(client, f"{attempt}/{name}", TAIL_BYTES)):
            yield name, text
            if name == rundir.OUT_LOG:
                yield "last-lines.txt", last_lines(text)
    for name in _answers(client, attempt):
        text = _tail(client, f"{attempt}/{rundir.EVIDENCE}/{name}", WHOLE_BYTES)
        yield f"{rundir.EVIDENCE}/{name}", text
        yield from _stacks(name, text)


def _answers(client: RelayClient, attempt: str) -> list[str]:
    try:
        entries = client.list(f"{attempt}/{rundir.EVIDENCE}")
    except RelayError:  # an attempt of an older rltui
        return []
    return sorted(entry.name for entry in entries if entry.name.endswith(".json"))[-MOST_ANSWERS:]


def _stacks(name: str, text: str) -> Iterator[tuple[str, str]]:
    """The stacks of one node's answer once more, to be read by people."""
    answer = parse_object(text) or {}
    told = [one for one in answer.get("processes", ()) if isinstance(one, dict)]
    lines = [
        f"pid {one.get('pid')} {one.get('title')} state {one.get('state')} {one.get('wchan')}\n{one.get('stack', '')}\n"
        for one in told
    ]
    if lines:
        yield f"{rundir.EVIDENCE}/{name.removesuffix('.json')}-stacks.txt", "\n".join(lines)


def _tail(client: RelayClient, path: str, size: int) -> str:
    try:
        return client.tail(path, size).data.decode("utf-8", "replace")
    except RelayError:
        return ""


def _secrets(client: RelayClient, attempt: str) -> list[str]:
    """The attempt's own tokens and variables, should one of them stand in a log."""
    found = []
    for name in WITH_TOKENS:
        said = parse_object(_tail(client, f"{attempt}/{name}", 1 << 16)) or {}
        found.append(str(said.get("token") or ""))
    lines = _tail(client, f"{attempt}/{rundir.ENVIRONMENT}", 1 << 20).splitlines()
    return [*found, *_secret_values(lines)]


def _secret_values(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        name, _, value = line.partition("=")
        if is_secret_name(name):
            yield value.strip().strip("\"'")


def _write(target: Path, run_id: str, files: dict[str, str]) -> None:
    """Write the archive beside its place and move it there; nobody else may read it."""
    part = target.with_name(f".{target.name}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name in sorted(files):
            data = files[name].encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"{run_id}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(data))
    part.replace(target)


def default_name(run_id: str) -> str:
    """The file's name where the user gives none."""
    return f"{run_id}-bundle.tar.gz"


def in_words(bundle: Bundle) -> Sequence[str]:
    """What to say of a bundle that is made."""
    silent = [f"no answer from {', '.join(bundle.silent)}"] if bundle.silent else []
    nodes = f"processes of {', '.join(bundle.answered)}" if bundle.answered else "no node was asked"
    return [bundle.path, *silent, f"{len(bundle.files)} files; {nodes}; secrets are masked, read it before you send it"]
