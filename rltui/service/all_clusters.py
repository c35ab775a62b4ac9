"""All clusters at once: each is read by itself, so that one that is away costs the others nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from msgspec import structs

from rltui.cluster.profile import LOCAL
from rltui.cluster.profiles import load_profiles
from rltui.cluster.prompts import Prompter, TerminalPrompter
from rltui.cluster.transport import NeedsAttentionError
from rltui.errors import ClusterError, RltuiError, UsageError, tried
from rltui.paths import cache_dir
from rltui.service.cockpit import ClusterSummary
from rltui.service.context import Context, find_run
from rltui.service.last_rows import LastRows
from rltui.watch.snapshots import RunsSnapshot, RunSummary

PATIENCE_S = 15.0
"""How long one picture waits for a cluster; a slower one is shown as it was, and is there the next time.

Longer than what a killed supervisor left takes to end (``onnode/guard.py``), which the first look after that waits for.
"""

NUMBERS_S = 5.0
"""How long a list in the shell may take to read the last metrics of runs that ended, the newest first."""


_keeping = threading.Event()
_kept: dict[str, AllClusters] = {}
"""What is kept open, by the name that was asked for; empty: all clusters."""


class ClusterReader:
    """The runs of one cluster, read in a thread of its own."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.problem = ""
        self.needs_attention = False
        self.answered_at = 0.0
        self._lock = threading.Lock()
        self._reading: threading.Thread | None = None
        self._snapshot = RunsSnapshot()

    def start(self) -> None:
        """Begin to read, unless a reading is going on."""
        if self._reading is None or not self._reading.is_alive():
            self._reading = threading.Thread(target=self._read, name=f"runs of {self.context.name}", daemon=True)
            self._reading.start()

    def wait(self, timeout_s: float) -> RunsSnapshot:
        """The runs as read, or as last seen with the reason; waits at most ``timeout_s`` for a reading to end."""
        if self._reading is not None:
            self._reading.join(max(0.0, timeout_s))
            if self._reading.is_alive():
                name = self.context.name
                return structs.replace(self._stale(f"{name} has not answered yet"), unread=(name,))
        return self._stale(self.problem) if self.problem else self._snapshot

    def fresh(self) -> RunsSnapshot:
        """Read now, in this thread."""
        with self._lock:
            snapshot = self.context.runs()
        if snapshot.problem:
            raise ClusterError(snapshot.problem)
        self.context.rows.keep(snapshot)
        if not snapshot.scheduler_problem:
            return snapshot
        return structs.replace(snapshot, scheduler_problem=with_name(self.context.name, snapshot.scheduler_problem))

    def _read(self) -> None:
        try:
            self._snapshot = self.fresh()
        except RltuiError as error:
            self.needs_attention = isinstance(error, NeedsAttentionError)
            self.problem = with_name(self.context.name, error.message)
        except Exception as error:  # the edge of a thread: without a word, no rows would look like no runs
            self.problem = with_name(self.context.name, f"its runs cannot be read: {type(error).__name__}: {error}")
            raise
        else:
            self.problem, self.needs_attention = "", False
            self.answered_at = time.time()

    def _stale(self, problem: str) -> RunsSnapshot:
        kept = self.context.rows.last()
        runs = tuple(structs.replace(run, as_of=kept.taken_at) for run in kept.runs)
        return RunsSnapshot(runs=runs, taken_at=kept.taken_at, problem=problem)


class AllClusters:
    """The clusters of the user's profiles; each is opened when it is first needed.

    Args:
        names: Which ones; None: all.
        prompter: Who answers when a cluster asks something; None: nobody.

    Raises:
        UsageError: There is no cluster of one of these names.
    """

    def __init__(self, names: Sequence[str] | None = None, prompter: Prompter | None = None) -> None:
        self.profiles = load_profiles()
        for name in names or ():
            self.profiles.get(name)
        everything = sorted(self.profiles.by_name, key=lambda name: (name != LOCAL, name))
        self.names = tuple(names) if names else tuple(everything)
        self._prompter = prompter
        self._readers: dict[str, ClusterReader] = {}
        self._opening = threading.Lock()
        self._with_gpus = False

    def reader(self, name: str) -> ClusterReader:
        """The reader of one cluster, opened now if it was not.

        Raises:
            UsageError: No cluster has this name.
        """
        with self._opening:
            if name not in self._readers:
                self._readers[name] = ClusterReader(Context(name, self._prompter))
                self._readers[name].context.with_gpus = self._with_gpus
            return self._readers[name]

    def want_gpus(self, on: bool) -> None:
        """Let the rows of live runs tell how busy their GPUs are from now on, or no more."""
        with self._opening:
            self._with_gpus = on
            for reader in self._readers.values():
                reader.context.with_gpus = on

    def has_answered(self, name: str) -> bool:
        """Whether a cluster answered when its runs were last read; asks nobody."""
        reader = self._readers.get(name)
        return reader is not None and bool(reader.answered_at) and not reader.problem

    def context(self, name: str) -> Context:
        """The context of one cluster.

        Raises:
            UsageError: No cluster has this name.
        """
        return self.reader(name).context

    def runs(self, patience_s: float = PATIENCE_S) -> RunsSnapshot:
        """The runs of all clusters, newest first; never raises for one that is away.

        Args:
            patience_s: How long to wait for the slowest.
        """
        opened = {name: tried(partial(self.reader, name)) for name in self.names}
        readers = [reader for reader, _ in opened.values() if reader is not None]
        refused = {name: error for name, (_, error) in opened.items() if error is not None}
        if len(self.names) == 1:
            for error in refused.values():
                raise error
        for reader in readers:
            reader.start()
        deadline = time.monotonic() + patience_s
        problems = [with_name(name, error.message) for name, error in refused.items()]
        return merged([reader.wait(deadline - time.monotonic()) for reader in readers], problems)

    def with_numbers(self, runs: Sequence[RunSummary]) -> list[RunSummary]:
        """``runs`` with the last metrics of all that ended, where ``runs`` gave only those of the newest."""
        deadline, found = time.monotonic() + NUMBERS_S, list(runs)
        for name in dict.fromkeys(run.reader for run in runs if not run.as_of):
            places = [place for place, run in enumerate(runs) if run.reader == name and not run.as_of]
            with suppress(RltuiError):
                numbered = self.context(name).reader.filled([runs[place] for place in places], deadline)
                for place, run in zip(places, numbered, strict=True):
                    found[place] = run
        return found

    def find(self, word: str) -> tuple[Context, RunSummary]:
        """The run that ``word`` names, with its cluster, as in ``find_run``.

        Raises:
            UsageError: No run, or more than one, is meant.
        """
        run_id, _, cluster = word.partition("@")
        likely = self._likely(run_id, cluster)
        for name in likely:
            exact = [run for run in self.reader(name).fresh().runs if run.run_id == run_id and not run.through]
            if exact and name != likely[-1]:
                break  # a later one had a run of that id, too: where all are known, it is refused
            if exact:
                return self.context(name), exact[0]
        snapshot = self.runs()
        problem = snapshot.problem.rstrip(".")
        try:
            run = find_run(snapshot.runs, word)
        except UsageError as error:
            if problem and "No run" in error.message:
                raise ClusterError(f"{error.message[:-1]} where rltui could look: {problem}.") from error
            raise
        if run.as_of:
            hint = f"`rltui doctor {run.cluster}` finds out why, and asks for what it needs."
            raise ClusterError(f"{run.run_id} is on {run.cluster}, which is away: {problem}.", hint)
        return self.context(run.reader), run

    def summaries(self) -> tuple[ClusterSummary, ...]:
        """The clusters in words, ``local`` first; asks no network."""
        return tuple(self._summary(name) for name in self.names)

    def close(self) -> None:
        """End every relay that was opened."""
        for reader in tuple(self._readers.values()):
            reader.context.close()

    def _likely(self, run_id: str, cluster: str) -> tuple[str, ...]:
        """Clusters that had a run of exactly this id when they were last seen; this machine is always asked first."""
        names = [name for name in self.names if cluster in ("", name)]
        return tuple(name for name in names if name == LOCAL or LastRows(cache_dir(), name).has(run_id))

    def _summary(self, name: str) -> ClusterSummary:
        profile, reader = self.profiles.by_name[name], self._readers.get(name)
        return ClusterSummary(
            name=name,
            summary=profile.summary,
            scheduler=profile.scheduler,
            place=profile.host or "this machine",
            problem=reader.problem if reader else "",
            needs_attention=reader.needs_attention if reader else False,
            answered_at=reader.answered_at if reader else 0.0,
        )


@contextmanager
def open_clusters(name: str = "") -> Iterator[AllClusters]:
    """The clusters for the length of a verb: the one called ``name``, which may ask its user things, or all."""
    if name in _kept:
        yield _kept[name]
        return
    clusters = AllClusters([name] if name else None, TerminalPrompter() if name else None)
    if _keeping.is_set():
        _kept[name] = clusters
        yield clusters
        return
    try:
        yield clusters
    finally:
        clusters.close()


@contextmanager
def open_run(cluster: str, word: str) -> Iterator[tuple[Context, RunSummary]]:
    """The run that ``word`` names, with its cluster, for the length of a verb; ``cluster`` is as for ``open_clusters``.

    Raises:
        UsageError: No run, or more than one, is meant.
    """
    with open_clusters(cluster) as clusters:
        yield clusters.find(word)


@contextmanager
def kept_open() -> Iterator[None]:
    """What ``open_clusters`` opens inside is kept for the next time, and closed at the end: for a verb done often."""
    _keeping.set()
    try:
        yield
    finally:
        _keeping.clear()
        while _kept:
            _kept.popitem()[1].close()


def merged(snapshots: Sequence[RunsSnapshot], problems: Sequence[str] = ()) -> RunsSnapshot:
    """One picture out of those of several clusters, newest run first; a run that several profiles see is in it once."""
    runs = _each_once([run for snapshot in snapshots for run in snapshot.runs])
    runs.sort(key=lambda run: (run.created_at, run.run_id), reverse=True)
    said = [*(snapshot.problem for snapshot in snapshots if snapshot.problem), *problems]
    taken_at = max((snapshot.taken_at for snapshot in snapshots), default=0.0)
    return RunsSnapshot(
        runs=tuple(runs),
        taken_at=taken_at,
        problem="; ".join(said),
        scheduler_problem="; ".join(one.scheduler_problem for one in snapshots if one.scheduler_problem),
        unread=tuple(name for snapshot in snapshots for name in snapshot.unread),
    )


def _each_once(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """Each of ``runs`` as it is seen now, and that by its own cluster, where one profile does."""
    best = sorted(runs, key=lambda run: (bool(run.owner), run.as_of > 0, bool(run.through)))
    once: dict[tuple[str, float], RunSummary] = {}
    taken: set[str] = set()
    for run in best:
        if not run.owner or run.run_id not in taken:  # nobody's run may stand for one of another's
            once.setdefault((run.run_id, run.created_at), run)
        taken.add(run.run_id)
    return list(once.values())


def with_name(cluster: str, sentence: str) -> str:
    """``sentence`` with the cluster's name, unless it is in there."""
    return sentence if cluster in sentence else f"{cluster}: {sentence}"
