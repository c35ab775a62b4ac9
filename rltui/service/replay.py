"""A recorded run behind the cockpit's screens: its files as they were at a clock's moment, and that clock."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from msgspec import structs

from rltui.cluster.profile import Profile
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import FileChunk, FileRange, Hello, RelayError
from rltui.errors import UsageError
from rltui.onnode import rundir
from rltui.onnode.relay import carry_out
from rltui.service.as_of import run_times
from rltui.service.context import Context
from rltui.service.live_cockpit import LiveCockpit
from rltui.service.recording import Recording
from rltui.service.run_reading import stragglers_in
from rltui.watch.lines import decode
from rltui.watch.run_facts import RunRecord
from rltui.watch.run_watcher import RunWatcher
from rltui.watch.snapshots import RunIdentity, RunSnapshot, RunsSnapshot, RunSummary

if TYPE_CHECKING:
    from rltui.cluster.cluster import Cluster
    from rltui.service.as_of import Happening
    from rltui.service.cockpit import ClusterSummary
    from rltui.service.launch_review import PresetSummary
    from rltui.service.run_events import Event


READS = frozenset({"read", "tail", "collect", "list", "search", "records"})
NOT_HERE = "This is a recording: it shows what was, and nothing of it can be asked or changed."


class RecordedFiles:
    """The files of a recording in a folder, as of one moment; for one thread at a time."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.times = run_times(recording)
        self.now = self.times.begin
        self.root = Path(tempfile.mkdtemp(prefix="rltui-replay-"))
        self.path = self.root / recording.manifest.run_id
        self._shown: dict[str, bytes | int | None] = {}
        self._make_folders()
        self.show(self.now)

    def _make_folders(self) -> None:
        self.path.mkdir(mode=0o700)
        for name in self.times.files:
            (self.path / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def show(self, now: float) -> None:
        """Let the folder hold what the run's held at ``now``, epoch seconds."""
        self.now = now
        for name, file in self.times.files.items():
            wanted, shown = file.at(now), self._shown.get(name)
            if wanted != shown:
                self._write(self.path / name, wanted, shown, file.data)
                self._shown[name] = wanted

    @staticmethod
    def _write(path: Path, wanted: bytes | int | None, shown: bytes | int | None, data: bytes) -> None:
        if wanted is None:
            path.unlink()
        elif isinstance(wanted, bytes):
            # beside its place first, as the run wrote it: who reads meanwhile sees the old or the new one
            part = path.with_name(f".{path.name}")
            part.write_bytes(wanted)
            part.replace(path)
        elif isinstance(shown, int) and shown < wanted:
            with path.open("ab") as stream:
                stream.write(data[shown:wanted])
        else:
            path.write_bytes(data[:wanted])

    def close(self) -> None:
        """Remove the private folder in which the moment's files stood."""
        shutil.rmtree(self.root, ignore_errors=True)


class RecordedClient(RelayClient):
    """A relay that knows of a recording only.

    Args:
        files: The recording; whoever shows another moment holds ``lock`` meanwhile.
    """

    def __init__(self, files: RecordedFiles) -> None:
        self.lock = threading.RLock()
        self.trusted = None
        self._owners = {}
        self._files = files
        self._root = os.path.realpath(files.root)

    @property
    def place(self) -> str:
        """What messages call the place that files are read from."""
        return "the recording"

    def hello(self) -> Hello:
        """A host of its own, so that servers of the run are on another, and the recording's clock."""
        return Hello(1, "", "", "", 0, "", 0, self._files.now)

    def close(self) -> None:
        """Do nothing: no connection was opened."""

    def _ask(
        self, op: str, fields: dict[str, Any], timeout_s: float | None = None, idempotent: bool = True
    ) -> dict[str, Any]:
        del timeout_s, idempotent
        if op == "alive":
            return {"alive": [self._is_alive()] * len(fields["processes"])}
        if op not in READS:
            raise RelayError("refused", NOT_HERE)
        self._confine(fields.get("root", fields.get("path", "")))
        with self.lock:
            answer = carry_out({"op": op, **fields})
        if not answer["ok"]:
            raise RelayError(str(answer["kind"]), str(answer["error"]))
        return {**answer, "time": self._files.now} if op == "collect" else answer

    def _is_alive(self) -> bool:
        """Whether the processes of the newest attempt ran; only asked while nothing has written their end."""
        return self._files.recording.manifest.is_live or self._files.now < self._files.times.end

    def _confine(self, path: str) -> None:
        """Refuse a path outside: what a recording holds may name any file of the machine that it is shown on."""
        found = os.path.realpath(path)
        if path.startswith("~") or (found != self._root and not found.startswith(self._root + os.sep)):
            raise RelayError("missing", f"It is not in the recording: {path}.")

    def _read_many(self, ranges: Sequence[FileRange]) -> tuple[FileChunk | RelayError, ...]:
        return tuple(self._read_one(one) for one in ranges)

    def _read_one(self, wanted: FileRange) -> FileChunk | RelayError:
        try:
            if wanted.offset is None:
                return self.tail(wanted.path, wanted.limit)
            return self.read(wanted.path, wanted.offset, wanted.limit)
        except RelayError as error:
            return error


SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
UNITS_S = (86400.0, 3600.0, 60.0, 1.0)
SAME_S = 0.01
"""Two events this close are one to jump to."""

_SPAN = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?\Z")
_CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2})\Z")


class ReplayClock:
    """Which moment of the recording it is. Times are epoch seconds; it stands still at both ends.

    Args:
        begin: The first moment.
        end: The last one.
        speed: Recorded seconds a second.
        clock: Seconds that only grow.

    Attributes:
        utc_offset_s: The time zone in which moments are said.
        paused: Whether it stands.
    """

    def __init__(
        self, begin: float, end: float, speed: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.begin, self.end, self.speed = begin, end, speed
        self.utc_offset_s = 0.0
        self.paused = False
        self._clock = clock
        self._at, self._since = begin, clock()

    @property
    def now(self) -> float:
        """The moment of the recording that is shown, epoch seconds."""
        passed = 0.0 if self.paused else (self._clock() - self._since) * self.speed
        return min(self.end, self._at + passed)

    @property
    def is_over(self) -> bool:
        """Whether there is no more to come."""
        return self.now >= self.end

    @property
    def in_words(self) -> str:
        """How much has passed, of how much, and the moment by the cluster's own clock."""
        now = self.now
        passed, whole = (timedelta(seconds=int(end - self.begin)) for end in (now, self.end))
        return f"{passed} of {whole}, {time.strftime('%m-%d %H:%M:%S', time.gmtime(now + self.utc_offset_s))}"

    def go_to(self, moment: float) -> None:
        """Go to a moment, within the recording; time passes on from there."""
        self._at, self._since = min(self.end, max(self.begin, moment)), self._clock()

    def toggle(self) -> None:
        """Stop it, or let it go on; at the end, begin again."""
        was_over = self.is_over
        self.go_to(self.begin if was_over else self.now)
        self.paused = not self.paused and not was_over

    def hurry(self, faster: bool) -> None:
        """Take the next speed of the row, or the one before."""
        self.go_to(self.now)
        beyond = [speed for speed in SPEEDS if (speed > self.speed if faster else speed < self.speed)]
        if beyond:
            self.speed = beyond[0] if faster else beyond[-1]


def moment_of(text: str, begin: float, end: float) -> float:
    """The moment that somebody means, epoch seconds.

    Args:
        text: How long after the beginning (``90``, ``12m``, ``1h30m``, ``1:02:03``), or which share of the whole
            (``0.5``, ``50%``; ``end``). A fraction without a unit is a share up to 1.
        begin: The recording's first moment.
        end: Its last.

    Raises:
        UsageError: It cannot be read, or is after the end.
    """
    words = text.strip().lower()
    share = _share(words)
    if share is not None:
        return begin + share * (end - begin)
    clock, span = _CLOCK.match(words), _SPAN.match(words)
    if clock:
        after_s = int(clock[1] or 0) * 3600.0 + int(clock[2]) * 60.0 + int(clock[3])
    elif words and span:
        after_s = sum(float(number or 0) * unit_s for number, unit_s in zip(span.groups(), UNITS_S, strict=True))
    else:
        raise UsageError(f"{text[:40]!r} is no time of a recording.", "Write 90s, 12m, 1h30m, 1:02:03, 50% or end.")
    if after_s > end - begin + 1.0:
        raise UsageError(
            f"{text[:40]} is after the end: the recording lasts {end - begin:.0f} s.", "Write a time in it."
        )
    return min(end, begin + after_s)


def _share(words: str) -> float | None:
    if words == "end":
        return 1.0
    if re.fullmatch(r"\d{1,3}(\.\d+)?%", words) and float(words[:-1]) <= 100.0:
        return float(words[:-1]) / 100.0
    return float(words) if re.fullmatch(r"0?\.\d+", words) else None


class RecordedCluster:
    """Stands where a cluster stands otherwise: has the recording's files, and can do nothing."""

    def __init__(self, client: RecordedClient, run_root: str) -> None:
        self.client = client
        self.profile = Profile(name="recording", scheduler="local")
        self.name, self.run_root, self.python = self.profile.name, run_root, ""


class ReplayCockpit(LiveCockpit):
    """The services on a recording, without any cluster; safe to call from several threads.

    Args:
        recording: What was read of the file.
        speed: Recorded seconds a second.
        at: The moment to begin at, as ``moment_of`` takes it; empty: the beginning.
        clock: Seconds that only grow; tests bring their own.

    Raises:
        UsageError: ``at`` cannot be read.
    """

    def __init__(
        self, recording: Recording, *, speed: float = 1.0, at: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._files = RecordedFiles(recording)
        self._client = RecordedClient(self._files)
        times = self._files.times
        self.events: tuple[Happening, ...] = times.events
        record = decode(recording.files.get(rundir.RUN, (b"", 0.0))[0], RunRecord)
        self.identity = RunIdentity(record.cluster if record is not None else "", recording.manifest.run_id)
        self.clock = ReplayClock(times.begin, times.end, speed, clock)
        self.clock.utc_offset_s = recording.manifest.utc_offset_s
        self._at_files = Context(cluster=cast("Cluster", RecordedCluster(self._client, str(self._files.root))))
        self._watcher = self._open()
        self._seen: RunSummary | None = None
        if at:
            self.clock.go_to(moment_of(at, times.begin, times.end))

    def _open(self) -> RunWatcher:
        # what is listed now and then is listed by the recording's clock
        return RunWatcher(self._client, str(self._files.path), lambda: self._files.now)

    def _found(self, run: RunIdentity) -> tuple[Context, RunSummary]:
        return self._at_files, self._seen or self.watch(run).summary

    def watch(self, run: RunIdentity, log: str = "") -> RunSnapshot:  # noqa: ARG002 there is one
        """The run as it was at the clock's moment."""
        with self._client.lock:
            now = self.clock.now
            if now < self._files.now:
                self._watcher = self._open()
            self._files.show(now)
            picture = self._watcher.whole(log)
        seen = structs.replace(picture.summary, cluster=self.identity.cluster)
        if seen.state == "unknown" and now < self.clock.end:  # what the scheduler said is not recorded
            seen = structs.replace(seen, state="queued")
        self._seen = seen
        picture = structs.replace(picture, summary=seen)
        return structs.replace(picture, stragglers=stragglers_in(picture))

    def beside(self, run: RunIdentity) -> RunSnapshot:
        """Refuse: there is one run.

        Raises:
            UsageError: Always.
        """
        raise UsageError(f"{run.run_id} is not in this recording.", "Open the cockpit to compare runs.")

    @property
    def said(self) -> str:
        """The event before the clock's moment, in words; empty before the first."""
        now = self.clock.now
        return next((one.text for one in reversed(self.events) if one.at <= now), "")

    def jump(self, forward: bool) -> Happening | None:
        """Set the clock to the next event, or to the one before; None where there is none."""
        now = self.clock.now
        # going back from an event that was just gone to leads to the one before it, though the clock went on
        slack_s = SAME_S if self.clock.paused else SAME_S + self.clock.speed
        beyond = [one for one in self.events if (one.at > now + SAME_S if forward else one.at < now - slack_s)]
        found = (beyond[0] if forward else beyond[-1]) if beyond else None
        if found is not None:
            self.clock.go_to(found.at)
        return found

    def runs(self) -> RunsSnapshot:
        """None: the list of runs is of what there is now."""
        return RunsSnapshot()

    def presets(self) -> tuple[PresetSummary, ...]:
        """None: nothing can be launched from here."""
        return ()

    def clusters(self) -> tuple[ClusterSummary, ...]:
        """No clusters: a recording is watched from files."""
        return ()

    def want_gpus(self, *, on: bool) -> None:
        """Nothing: there is no list."""

    def terminal(self, event: Event) -> str:  # noqa: ARG002 it is over
        """Nothing is to be told."""
        return "none"

    def tell(self, event: Event) -> str:  # noqa: ARG002 it is over
        """Tell nobody: what happens in a recording has happened."""
        return ""

    def refuse(self, *_: object, **__: object) -> NoReturn:
        """Say that nothing can be done."""
        raise UsageError(NOT_HERE, "`rltui` opens the cockpit on the runs that there are.")

    connect = review = outlook = launch = open_jobs = queue = adopt = node_report = fields = node_shell = refuse
    preview = carry_out = refuse

    def close(self) -> None:
        """Take the files of the moment away."""
        self._files.close()
