"""A run as one file that tells when: what `rltui record` and `rltui bundle` write, and `rltui replay` shows again.

The file is a ``.tar.gz`` with one folder, named as the run. In it are ``recording.json`` (``Manifest``), files of the
run directory under their own names, without secrets, and ``changes.jsonl``: what small files said before (``{"t",
"path", "text"}``) and how long logs were (``{"t", "path", "size"}``), as far as somebody has watched.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import Struct, structs

import rltui
from rltui.cluster.plain_text import printable
from rltui.cluster.relay_client import RelayClient, pieces
from rltui.cluster.relay_types import Entry, RelayError
from rltui.errors import UsageError
from rltui.layout.secret_words import is_secret_name, masked
from rltui.onnode import rundir
from rltui.onnode.lost_nodes import is_sampler_file
from rltui.watch.attempt_logs import RAY_LOGS, is_log
from rltui.watch.lines import decode, parse_object
from rltui.watch.log_times import zone_of
from rltui.watch.snapshots import RunSummary

SCHEMA = 1
MANIFEST, CHANGES = "recording.json", "changes.jsonl"
OF_RUN = (rundir.RUN, rundir.HANDS_OFF)
OF_ATTEMPT = (
    rundir.LAYOUT, rundir.ORIGINS, rundir.JOB, rundir.SCRIPT, rundir.SCRIPT_RUN, rundir.SUBMITTED, rundir.ADOPTED,
    rundir.SUPERVISOR, rundir.STAGE, rundir.END, rundir.SLURM, rundir.PREFLIGHT, rundir.FAILURE, rundir.MEMORY,
    rundir.ACTORS, rundir.STATUS_NOW,
)  # fmt: skip
"""Small files of an attempt, none of which holds a secret by what it is for; they are masked all the same."""
WITH_TOKENS = (rundir.RAY_ENDPOINT, rundir.STATUS_ENDPOINT)

SMALL_BYTES = 4 << 20
LOG_BYTES = 4 << 20
LINES_BYTES = 32 << 20
SAMPLERS_BYTES, LEAST_SAMPLER_BYTES = 128 << 20, 1 << 18
"""What the samples of all nodes may take together, and those of one at least."""
MOST_LOGS = 32
MOST_BYTES = 1 << 29
"""What a recording may unpack to; one that is made stops at half of it."""
MOST_FILES = 20_000
DAY_S = 86400.0
LATEST = 1e11
"""No time is later, in epoch seconds."""
FOLDERS = frozenset({rundir.ATTEMPTS, rundir.EVALUATIONS, rundir.EVIDENCE, RAY_LOGS})
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@=,-]{0,200}\Z")
_PLACES = re.compile(r"(?:attempts/\d{1,6}/(?:ray-logs/|evidence/)?|evaluations/)?[^/]+\Z")
HINT = "`rltui record RUN` and `rltui bundle RUN` make files that can be shown."


class Manifest(Struct, frozen=True, kw_only=True):
    """What a recording says of itself."""

    schema: int = 0
    run_id: str = ""
    made_by: str = ""
    recorded_at: float = 0.0
    """Until when it knows of the run, epoch seconds by the cluster's clock."""
    is_live: bool = False
    """Whether the run went on then."""
    utc_offset_s: float = 0.0
    """The cluster's time zone, in which its logs are written."""
    cut: tuple[str, ...] = ()
    """Files that were too long: their beginnings are not in it."""


class Part(Struct, frozen=True):
    """One file: its text, and when it was last written, epoch seconds."""

    text: str
    mtime: float = 0.0


class Recording(Struct, frozen=True):
    """A recording that was read."""

    manifest: Manifest
    files: dict[str, tuple[bytes, float]]
    """Bytes and time of the last change, by path below the run's directory."""
    changes: tuple[dict[str, object], ...] = ()


class Saved(Struct, frozen=True):
    """What was written: the file, what is in it, and what of that is not whole."""

    path: str
    files: tuple[str, ...]
    cut: tuple[str, ...] = ()


class Packer:
    """Gathers the files of a run, cleans them and writes them."""

    def __init__(self, client: RelayClient, run: RunSummary) -> None:
        self._client = client
        self._run = run
        self._parts: dict[str, Part] = {}
        self._cut: list[str] = []
        self._secrets: list[str] = []
        self._left_bytes = MOST_BYTES // 2

    def add_run(self, *, answers: bool = True) -> None:
        """Take the files of the run itself; with ``answers`` also those of its evaluations."""
        for entry in self._list(""):
            if entry.name in OF_RUN:
                self.add(entry.name, SMALL_BYTES, entry.mtime)
        for entry in self._list(rundir.EVALUATIONS) if answers else ():
            self.add(f"{rundir.EVALUATIONS}/{entry.name}", LOG_BYTES, entry.mtime)

    def add_attempt(self, number: int, *, answers: bool = True, most_bytes: int = LINES_BYTES) -> None:
        """Take the files of one attempt that are for others to see; with ``answers`` also its samples."""
        folder = rundir.attempt_folder("", number)[1:]
        entries = {one.name: one for one in self._list(folder) if one.type in ("file", "link")}
        samplers = [name for name in entries if is_sampler_file(name)]
        each = max(LEAST_SAMPLER_BYTES, SAMPLERS_BYTES // max(1, len(samplers)))
        limits = dict.fromkeys(OF_ATTEMPT, SMALL_BYTES) | dict.fromkeys(samplers, min(each, most_bytes))
        limits |= {rundir.METRICS: most_bytes, rundir.EVENTS: most_bytes}
        limits |= {rundir.SAMPLES: LOG_BYTES} if answers else {}
        limits |= dict.fromkeys([name for name in entries if is_log(name)][:MOST_LOGS], min(LOG_BYTES, most_bytes))
        for name, limit in limits.items():
            if name in entries:
                self.add(f"{folder}/{name}", limit, entries[name].mtime)
        for entry in [one for one in self._list(f"{folder}/{RAY_LOGS}") if is_log(one.name)][:MOST_LOGS]:
            self.add(f"{folder}/{RAY_LOGS}/{entry.name}", min(LOG_BYTES, most_bytes), entry.mtime)
        self._secrets += secrets_of(self._client, f"{self._run.path}/{folder}")

    def add(self, name: str, limit: int, mtime: float = 0.0) -> str:
        """Take the last ``limit`` bytes of a file, by its path below the run's; returns its text."""
        try:
            data, size = _end_of(self._client, f"{self._run.path}/{name}", min(limit, self._left_bytes))
        except RelayError:  # it is gone, or is none of ours
            return ""
        if size > len(data):
            self._cut.append(name)
        self._left_bytes -= len(data)
        self.put(name, data.decode("utf-8", "replace"), mtime)
        return self.text(name)

    def text(self, name: str) -> str:
        """The text that was taken under a name; empty where none was."""
        return self._parts[name].text if name in self._parts else ""

    def put(self, name: str, text: str, mtime: float = 0.0) -> None:
        """Take a text under a name; an empty one is left out, and a name that no recording may have."""
        if text and is_place(name):
            self._parts[name] = Part(text, mtime)

    def save(self, target: Path, changes: Iterable[Mapping[str, object]] = ()) -> Saved:
        """Write all that was taken into ``target`` (0600), without secrets.

        Raises:
            UsageError: The file cannot be written.
        """
        self.put(CHANGES, "".join(msgspec.json.encode(one).decode() + "\n" for one in changes))
        recorded_at = self._client.hello().time
        offset = datetime.fromtimestamp(recorded_at, zone_of(self._client)).utcoffset()
        manifest = Manifest(
            schema=SCHEMA,
            run_id=self._run.run_id,
            made_by=f"rltui {rltui.__version__}",
            recorded_at=recorded_at,
            is_live=self._run.is_live,
            utc_offset_s=(offset or timedelta()).total_seconds(),
            cut=tuple(self._cut),
        )
        parts = {name: structs.replace(one, text=masked(one.text, self._secrets)) for name, one in self._parts.items()}
        parts[MANIFEST] = Part(msgspec.json.encode(manifest).decode(), manifest.recorded_at)
        try:
            _write(target, self._run.run_id, parts)
        except OSError as error:
            raise UsageError(f"{target} cannot be written: {error.strerror}") from error
        return Saved(str(target), tuple(sorted(parts)), manifest.cut)

    def _list(self, folder: str) -> list[Entry]:
        try:
            return list(self._client.list(f"{self._run.path}/{folder}"))
        except RelayError as error:
            if error.kind in ("lost", "timeout"):
                raise
            return []


def _end_of(client: RelayClient, path: str, limit: int) -> tuple[bytes, int]:
    """The last ``limit`` bytes of a file, in pieces that the relay gives; and its size."""
    size = client.read(path, 0, 1).size
    return b"".join(chunk.data for chunk in pieces(client, path, max(0, size - limit)))[:limit], size


def secrets_of(client: RelayClient, attempt: str) -> list[str]:
    """The attempt's own tokens and variables, should one of them stand in a log."""
    found = []
    for name in WITH_TOKENS:
        said = parse_object(_text(client, f"{attempt}/{name}")) or {}
        found.append(str(said.get("token") or ""))
    return [*found, *_secret_values(_text(client, f"{attempt}/{rundir.ENVIRONMENT}").splitlines())]


def _text(client: RelayClient, path: str) -> str:
    try:
        return client.tail(path, 1 << 20).data.decode("utf-8", "replace")
    except RelayError:
        return ""


def _secret_values(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        name, _, value = line.partition("=")
        if is_secret_name(name):
            yield value.strip().strip("\"'")


def _write(target: Path, run_id: str, parts: Mapping[str, Part]) -> None:
    """Write the archive beside its place and move it there; nobody else may read it."""
    part = target.with_name(f".{target.name}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as archive:
            for name in sorted(parts):
                data = parts[name].text.encode("utf-8", "replace")
                entry = tarfile.TarInfo(f"{run_id}/{name}")
                entry.size, entry.mode, entry.mtime = len(data), 0o600, parts[name].mtime
                archive.addfile(entry, io.BytesIO(data))
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def read_recording(path: Path) -> Recording:
    """Read a recording into memory; nothing of it is written anywhere.

    Raises:
        UsageError: There is no such file, it is damaged or none of rltui's, or a newer rltui made it.
    """
    try:
        with _Limited(path) as stream:
            run_id, files = _unpack(stream)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", HINT) from error
    except (OSError, EOFError, tarfile.TarError, zlib.error, ValueError, OverflowError) as error:
        raise UsageError(f"{path} is damaged, or no recording: {printable(str(error))}.", HINT) from error
    manifest = decode(files.pop(MANIFEST, (b"", 0.0))[0], Manifest)
    if manifest is None or not _is_sound(manifest, run_id):
        raise UsageError(f"{path} is no recording: it has no {MANIFEST} that rltui wrote.", HINT)
    if manifest.schema > SCHEMA:
        made_by = f"{printable(manifest.made_by, 40)} wrote it in schema {manifest.schema}"
        raise UsageError(f"{path} is of a newer rltui: {made_by}, this one reads {SCHEMA}.", "Update rltui.")
    if rundir.RUN not in files:
        raise UsageError(f"{path} is damaged: it has no {rundir.RUN}.", HINT)
    changes = (parse_object(line) for line in files.pop(CHANGES, (b"", 0.0))[0].split(b"\n"))
    return Recording(manifest, files, tuple(one for one in changes if one is not None))


def _is_sound(manifest: Manifest, run_id: str) -> bool:
    """Whether it is of this run, and its times are some."""
    times = 0 <= manifest.recorded_at < LATEST and abs(manifest.utc_offset_s) < DAY_S
    return manifest.schema >= 1 and manifest.run_id == run_id and times


class _Limited(gzip.GzipFile):
    """A stream that ends with an error where more comes out of it than a recording may have."""

    left_bytes = MOST_BYTES

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.left_bytes -= len(data)
        if self.left_bytes < 0:
            raise ValueError(f"it unpacks to more than {MOST_BYTES >> 20} MiB")
        return data


def _unpack(stream: gzip.GzipFile) -> tuple[str, dict[str, tuple[bytes, float]]]:
    """The run's id and its files; whatever is no plain file below that one folder is refused."""
    run_id = ""
    files: dict[str, tuple[bytes, float]] = {}
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for entry in archive:
            top, _, name = entry.name.partition("/")
            run_id = run_id or top
            if top != run_id or not entry.isreg() or not is_place(name) or not _NAME.match(top):
                raise ValueError(f"it has an entry that no recording has, {printable(entry.name, 60)!r}")
            if len(files) >= MOST_FILES:
                raise ValueError(f"it has more than {MOST_FILES} files")
            data = archive.extractfile(entry)
            mtime = float(entry.mtime) if 0 <= entry.mtime < LATEST else 0.0
            files[name] = (data.read() if data is not None else b"", mtime)
    return run_id, files


def is_place(name: str) -> bool:
    """Whether a file of this path, below the run's directory, may be in a recording."""
    parts = name.split("/")
    return bool(_PLACES.match(name)) and all(map(_NAME.match, parts)) and parts[-1] not in FOLDERS
