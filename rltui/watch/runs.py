"""The list of runs of one cluster, from their directories."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import FileRange, ProcessIdentity, RelayError
from rltui.errors import ClusterError
from rltui.layout.scalars import CPU
from rltui.onnode import rundir
from rltui.onnode.lost_nodes import host_of, is_sampler_file, sampler_file
from rltui.onnode.progress import in_order
from rltui.watch.card_faults import events_range, newest_fault
from rltui.watch.hosts import SamplerLine
from rltui.watch.lines import decode, parse_object
from rltui.watch.metrics import parse_metrics
from rltui.watch.run_facts import ATTEMPT_FILES, RUN_FILES, RunFacts, run_facts, summarise
from rltui.watch.silence import LastMetrics, aged, halt_words, pause_s, silent_words
from rltui.watch.small_files import SmallFiles
from rltui.watch.snapshots import RunsSnapshot, RunSummary

METRICS_BYTES = 1 << 15
HISTORY = 60
ENDED_PER_REFRESH = 32
"""Ended runs whose last metrics are read in one refresh: a long list fills by and by."""

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
"""What a colleague's run may be called: the name is his, and stands in commands that are shown."""

DISK_FULL = "disk full"
"""The word for live runs whose folders are on a disk without room."""

ENDS_LAST_S = 60.0
"""For how long what samplers said counts: GPUs heat up and fall behind by the minute."""

RATES = ("learner_tokens_per_second_step", "actor_tokens_per_second")
"""Metrics that can stand for a run's speed, best first."""

LINE_BYTES = 16 << 10
"""A line with all processes of a node is a few thousand bytes."""
MOST_NODES = 8
"""Nodes of a run that are asked for: a column of the list is no reason to open a thousand files."""
MOST_WATCHED, WATCHED_BYTES = 64, 32 << 10
"""Nodes of a run whose GPUs are compared with each other now and then, and half a minute of eight GPUs."""
OLD_S = 60.0
"""A sample that is so much older than the newest tells nothing of now."""


class RunsReader:
    """Reads the list of runs again and again.

    Args:
        client: The relay of the cluster.
        run_root: The directory of the run directories.
        of_others: Read the runs that are not the user's, instead of his own.

    Attributes:
        with_gpus: Whether to tell how busy the GPUs of live runs are: their samplers' files are read with the rest.
    """

    def __init__(self, client: RelayClient, run_root: str, *, of_others: bool = False) -> None:
        self._client = client
        self._of_others = of_others
        self._root = run_root
        names = [*(f"*/{name}" for name in RUN_FILES), *(f"*/attempts/*/{name}" for name in ATTEMPT_FILES)]
        self._files = SmallFiles(client, run_root, names)
        self._metrics: dict[tuple[str, int], LastMetrics] = {}
        self._settled: set[tuple[str, int]] = set()
        self._last = RunsSnapshot()
        self.with_gpus = False
        self._hosts: dict[str, tuple[str, ...]] = {}
        self._loads: dict[tuple[str, int], float | None] = {}
        self._faults: dict[tuple[str, int], str] = {}
        self._ends: dict[tuple[str, int], tuple[float, list[bytes]]] = {}

    def read(self) -> RunsSnapshot:
        """Return all runs, newest first; where the cluster is away, those last seen, with the problem."""
        try:
            runs = self._with_metrics(self._summaries())
        except ClusterError as error:
            return msgspec.structs.replace(self._last, problem=error.message)
        self._last = RunsSnapshot(runs=tuple(runs), taken_at=self._files.taken_at)
        return self._last

    def filled(self, runs: Sequence[RunSummary], deadline: float) -> list[RunSummary]:
        """``runs`` with the last metrics of all that ended: a list that is read once cannot fill by and by.

        Args:
            runs: Runs of this cluster, newest first.
            deadline: When to stop, on the monotonic clock.
        """
        while (ended := self._unread(runs)) and time.monotonic() < deadline:
            self._read_metrics(ended[:ENDED_PER_REFRESH])
        return [self._numbered(run) for run in runs]

    def recent(self, run: RunSummary) -> tuple[dict[str, float], ...]:
        """The numbers of a live run's newest steps as they were read for its row; asks nobody."""
        return self._metrics.get(_key(run), LastMetrics()).lines

    def sampler_ends(self, run: RunSummary) -> list[bytes]:
        """The last half a minute of a live run's samplers; asks the cluster, and once a minute at most."""
        read_at, ends = self._ends.get(_key(run), (-math.inf, []))
        if run.gpu != CPU and time.monotonic() - read_at > ENDS_LAST_S:
            ranges = sample_ranges(run, self._hosts.get(run.run_id, ()), MOST_WATCHED, WATCHED_BYTES)
            answers = self._client.read_many(ranges) if ranges else ()
            ends = [answer.data for answer in answers if not isinstance(answer, RelayError)]
            self._ends[_key(run)] = time.monotonic(), ends
        return ends

    @property
    def taken_at(self) -> float:
        """When the runs were read last, epoch seconds by the cluster's clock."""
        return self._files.taken_at

    def _summaries(self) -> list[RunSummary]:
        facts = group_by_run(self._read_files())
        alive = supervisors_alive(self._client, facts)
        gone = [one for one, is_alive in zip(facts, alive, strict=True) if is_alive is False]
        if gone:
            # a supervisor that ended between the two questions has said how by now
            fresh = {one.run_id: one for one in group_by_run(self._read_files())}
            asked, facts = facts, [fresh.get(one.run_id, one) if one in gone else one for one in facts]
            alive = [told_of(now, of, said) for now, of, said in zip(facts, asked, alive, strict=True)]
        self._hosts = {one.run_id: one.newest.hosts for one in facts}
        runs = [self._row(one, is_alive) for one, is_alive in zip(facts, alive, strict=True)]
        return sorted(runs, key=lambda run: (run.created_at, run.run_id), reverse=True)

    def _row(self, facts: RunFacts, is_alive: bool | None) -> RunSummary:
        path, owner = f"{self._root}/{facts.run_id}", self._owner(facts.run_id)
        if owner:
            self._client.confine(path, owner)
        return msgspec.structs.replace(summarise(facts, path, is_alive), owner=owner)

    def _owner(self, run_id: str) -> str:
        return self._files.owner(f"{run_id}/{rundir.RUN}")

    def _read_files(self) -> dict[str, str]:
        """The files of the runs that are wanted; of a colleague's only those that are his: his links lead anywhere."""
        files = self._files.read()
        kept: dict[str, str] = {}
        for path, text in files.items():
            run_id = path.partition("/")[0]
            owner = self._owner(run_id)
            is_wanted = bool(owner) == self._of_others and (not owner or bool(RUN_ID.fullmatch(run_id)))
            if is_wanted and (not owner or self._files.owner(path) == owner):
                kept[path] = text
        return kept

    def _with_metrics(self, runs: list[RunSummary]) -> list[RunSummary]:
        live = [run for run in runs if run.is_live and run.attempt]
        # the last lines of a run come with its end, so it is read once more after that, and then no more
        self._settled.difference_update(_key(run) for run in live)
        self._read_metrics(live + self._unread(runs)[:ENDED_PER_REFRESH])
        self._faults = self._read_faults(live)
        self._loads = self._read_loads(live) if self.with_gpus else {}
        return [self._numbered(run) for run in runs]

    def _read_faults(self, runs: list[RunSummary]) -> dict[tuple[str, int], str]:
        answers = self._client.read_many([events_range(run) for run in runs]) if runs else ()
        return {
            _key(run): newest_fault(answer.data) or self._halt(run, answer.data)
            for run, answer in zip(runs, answers, strict=True)
            if not isinstance(answer, RelayError)
        }

    def _halt(self, run: RunSummary, events: bytes) -> str:
        told = [line for line in events.split(b"\n") if any(kind in line for kind in _OF_PROCESSES)]
        lines = self._metrics.get(_key(run), LastMetrics()).lines
        last = lines[-1].get("time", 0.0) if lines else 0.0
        return halt_words(filter(None, map(parse_object, told)), last, self._files.taken_at)

    def _read_loads(self, runs: list[RunSummary]) -> dict[tuple[str, int], float | None]:
        asked = [(run, one) for run in runs for one in sample_ranges(run, self._hosts.get(run.run_id, ()))]
        ends: dict[tuple[str, int], list[bytes]] = {}
        answers = self._client.read_many([one for _, one in asked]) if asked else ()
        for (run, _), answer in zip(asked, answers, strict=True):
            ends.setdefault(_key(run), []).append(b"" if isinstance(answer, RelayError) else answer.data)
        return {key: load_percent(found, self._files.taken_at) for key, found in ends.items()}

    def _unread(self, runs: Sequence[RunSummary]) -> list[RunSummary]:
        return [run for run in runs if not run.is_live and run.attempt and _key(run) not in self._settled]

    def _read_metrics(self, wanted: list[RunSummary]) -> None:
        ranges = [
            FileRange(f"{rundir.attempt_folder(run.path, run.attempt)}/{rundir.METRICS}", None, METRICS_BYTES)
            for run in wanted
        ]
        for run, answer in zip(wanted, self._client.read_many(ranges) if ranges else (), strict=True):
            known = LastMetrics() if isinstance(answer, RelayError) else last_metrics(answer.data, answer.mtime)
            self._metrics[_key(run)] = known if run.is_live else msgspec.structs.replace(known, lines=())
        self._settled.update(_key(run) for run in wanted if not run.is_live)

    def _numbered(self, run: RunSummary) -> RunSummary:
        metrics = self._metrics.get(_key(run), LastMetrics())
        told = aged(with_metrics(run, metrics), metrics, self._files.taken_at)
        told = msgspec.structs.replace(told, symptom=self._symptom(told))
        load = self._loads.get(_key(run))
        return told if load is None else msgspec.structs.replace(told, gpu_percent=load)

    def _symptom(self, run: RunSummary) -> str:
        fault = self._faults.get(_key(run), "")
        if not fault and run.is_live and self._files.is_disk_full:
            return DISK_FULL  # a run that trains on cannot say so: its numbers stand still
        return fault or (self._silent(run) if run.no_step_s else "")

    def _silent(self, run: RunSummary) -> str:
        """Whose sampler fell silent, of a run that makes no steps: only then, as it takes a list of files."""
        try:
            files = self._client.list(rundir.attempt_folder(run.path, run.attempt))
        except RelayError:  # it was taken away meanwhile
            return ""
        return silent_words({host_of(file.name): file.mtime for file in files if is_sampler_file(file.name)})


_OF_PROCESSES = (b'"process"', b'"restart"', b'"roles"', b'"awaited"')
"""In the events that tell of processes."""


def _key(run: RunSummary) -> tuple[str, int]:
    return run.path, run.attempt


def group_by_run(files: Mapping[str, str]) -> list[RunFacts]:
    """Return the facts of each run in ``files`` (text by path below the run root)."""
    runs: dict[str, dict[str, str]] = {}
    for path, text in files.items():
        run_id, _, rest = path.partition("/")
        runs.setdefault(run_id, {})[rest] = text
    found = (run_facts(run_id, texts) for run_id, texts in runs.items())
    return [facts for facts in found if facts is not None]


def supervisors_alive(client: RelayClient, runs: Sequence[RunFacts]) -> list[bool | None]:
    """Whether the supervisor of each run's newest attempt runs; None where it ended or nobody can tell from here."""
    asked = [
        (place, ProcessIdentity(who.pid, who.start_time, who.host))
        for place, run in enumerate(runs)
        if (who := run.newest.supervisor) is not None and who.start_time and run.newest.end is None
    ]
    answers: list[bool | None] = [None] * len(runs)
    if asked:
        for (place, _), answer in zip(asked, client.alive([one for _, one in asked]), strict=True):
            answers[place] = answer
    return answers


def told_of(now: RunFacts, asked: RunFacts, is_alive: bool | None) -> bool | None:
    """What was said of the supervisor of ``asked``, where ``now`` is still at that attempt; another's nobody has told.

    A run that goes on by itself has its next attempt a second after its last one's end, and that one is not lost.
    """
    return is_alive if now.newest.number == asked.newest.number else None


def last_metrics(data: bytes, written_at: float = 0.0) -> LastMetrics:
    """Return the last reward and the latest rates in the end of a ``metrics.jsonl``.

    Args:
        data: The end of the file.
        written_at: When the file was written to by its file system's clock, which the nodes' may differ from.
    """
    parsed = (parse_metrics(line) for line in data.split(b"\n")[-2 * HISTORY - 1 :])  # some tell a step again
    lines = [values for _, values in in_order(filter(None, parsed))][-HISTORY:]
    rewards = [values["reward"] for values in lines if math.isfinite(values.get("reward", math.nan))]
    rates: list[float] = []
    for name in RATES:
        rates = rates or [values[name] for values in lines if math.isfinite(values.get(name, math.nan))]
    times = [values["time"] for values in lines if math.isfinite(values.get("time", math.nan))]
    took_s = sorted(later - before for before, later in itertools.pairwise(times))
    return LastMetrics(
        rewards[-1] if rewards else None,
        tuple(rates[-HISTORY:]),
        max(times[-1], written_at) if times else 0.0,
        took_s[len(took_s) // 2] if took_s else 0.0,
        pause_s(took_s),
        tuple(lines),
    )


def with_metrics(run: RunSummary, metrics: LastMetrics) -> RunSummary:
    """Return ``run`` with its last metrics in it."""
    return msgspec.structs.replace(
        run,
        reward=metrics.reward,
        tokens_per_second=metrics.rates[-1] if metrics.rates else None,
        tokens_per_second_history=metrics.rates,
    )


def sample_ranges(
    run: RunSummary, hosts: Sequence[str], most: int = MOST_NODES, length: int = LINE_BYTES
) -> list[FileRange]:
    """The ends of the samplers' files of the newest attempt on its first nodes."""
    folder = rundir.attempt_folder(run.path, run.attempt)
    names = [host.split(".")[0] for host in hosts[:most]]
    return [FileRange(f"{folder}/{sampler_file(name)}", None, length) for name in names]


def load_percent(ends: Iterable[bytes], now: float) -> float | None:
    """The mean load of all GPUs in the last lines; None where nothing told of one lately.

    Args:
        ends: The end of each node's file.
        now: Epoch seconds by the clock of the cluster's files.
    """
    lines = [line for line in map(_last_line, ends) if line is not None and now - line.t < OLD_S]
    loads = [gpu.util for line in lines for gpu in line.gpus if gpu.util is not None]
    return sum(loads) / len(loads) if loads else None


def _last_line(data: bytes) -> SamplerLine | None:
    """The newest whole line; what stands behind the last line end is still being written."""
    for raw in reversed(data.split(b"\n")[:-1][-2:]):
        line = decode(raw, SamplerLine)
        if line is not None:
            return line
    return None
