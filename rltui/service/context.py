"""What every service needs: a cluster, the journal, and the runs there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.cluster.hosts import HostsCluster
from rltui.cluster.open_cluster import open_cluster
from rltui.cluster.profile import LOCAL
from rltui.errors import ClusterError, UsageError
from rltui.onnode import rundir
from rltui.paths import cache_dir, state_dir
from rltui.runs.journal import Journal
from rltui.service.last_rows import LastRows
from rltui.service.recover import Recoverer, Replacements
from rltui.service.run_jobs import CatchUp, JobWords
from rltui.service.team import Team
from rltui.watch.runs import RunsReader
from rltui.watch.snapshots import RunsSnapshot, RunSummary, names_of

if TYPE_CHECKING:
    from rltui.cluster.cluster import Cluster
    from rltui.cluster.prompts import Prompter
    from rltui.service.cluster_queue import QueueReader


class Context:
    """One cluster with its runs, and the user's journal. It connects when something is first asked of it.

    Args:
        cluster_name: Which cluster.
        prompter: Who answers when the way there asks something; None: nobody.
        cluster: The cluster itself, where somebody has opened it already.
        journal: What is written of what is done; None: the user's.

    Raises:
        UsageError: No cluster has this name.
    """

    def __init__(
        self,
        cluster_name: str = LOCAL,
        prompter: Prompter | None = None,
        cluster: Cluster | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.cluster = cluster or open_cluster(cluster_name, prompter)
        self.name = self.cluster.name
        self.journal = journal or Journal(state_dir())
        self.recoverer = Recoverer(self.cluster, self.journal)
        self.replacements = Replacements(self.journal, self.name)
        self.rows = LastRows(cache_dir(), self.name)
        """The runs as last seen, on this machine's disk."""
        self.jobs = JobWords(self.cluster, self.rows)
        self.adopted = CatchUp(self.cluster)
        self.team = Team(self.cluster)
        self.with_gpus = False
        """Whether the rows of live runs are to tell how busy their GPUs are."""
        self._queue: QueueReader | None = None
        self._reader: RunsReader | None = None

    @property
    def reader(self) -> RunsReader:
        """The reader of the run root."""
        if self._reader is None:
            self._reader = RunsReader(self.cluster.client, self.cluster.run_root)
        return self._reader

    @property
    def queue(self) -> QueueReader:
        """The reader of everybody's jobs there; it asks nobody before it is looked at."""
        if self._queue is None:
            from rltui.service.cluster_queue import QueueReader

            self._queue = QueueReader(self.cluster)
        return self._queue

    def runs(self) -> RunsSnapshot:
        """All runs, newest first, after looking after unfinished submissions.

        Where the cluster is away, the runs last seen come with the problem.

        Raises:
            ClusterError: The cluster was away from the start.
        """
        unsettled = self.recoverer.recover()
        self.reader.with_gpus = self.with_gpus
        snapshot = self._swept(self.adopted.caught_up(self.reader))
        snapshot = structs.replace(snapshot, runs=tuple(self._claimed(run) for run in snapshot.runs))
        if not snapshot.problem:
            snapshot = self.jobs.told(snapshot)
        snapshot = self.replacements.explained(self.recoverer.explained(snapshot, unsettled))
        return structs.replace(snapshot, runs=(*snapshot.runs, *self.team.runs()))

    def find(self, word: str) -> RunSummary:
        """The run of this cluster that ``word`` names, as in ``find_run``.

        Raises:
            UsageError: No run, or more than one, is meant.
        """
        snapshot = self.runs()
        if snapshot.problem:
            raise ClusterError(snapshot.problem)
        return find_run(snapshot.runs, word)

    def require_own(self, run: RunSummary) -> None:
        """Refuse to change a colleague's run, or one of another cluster, whose directory is only seen from here.

        Raises:
            UsageError: It is a colleague's, or another cluster's.
        """
        if run.owner:
            hint = f"Only {run.owner} may change it; you may read it."
            raise UsageError(f"{run.run_id}: this is {run.owner}'s run.", hint)
        if run.through or run.cluster != self.name:
            said = f"{run.run_id} belongs to cluster {run.cluster!r}; {self.name!r} only reads its files."
            raise UsageError(said, _way_to_change(run))

    def close(self) -> None:
        """End the relay; that the queue could not be asked over it is forgotten."""
        self._queue = None
        self.cluster.close()

    def _claimed(self, run: RunSummary) -> RunSummary:
        """``run`` with who may change it: profiles that share a disk see each other's runs."""
        if run.cluster in ("", self.name):
            return structs.replace(run, cluster=self.name)
        return structs.replace(run, through=self.name)

    def _swept(self, snapshot: RunsSnapshot) -> RunsSnapshot:
        """``snapshot`` after what supervisors that vanished without a word have left was ended."""
        lost = [
            run
            for run in snapshot.runs
            if run.state == "lost" and run.end is None and not run.is_adopted and run.cluster in ("", self.name)
        ]
        if not lost or not isinstance(self.cluster, HostsCluster):
            return snapshot
        for run in lost:
            with suppress(ClusterError):  # its machine went away; the next look tries again
                self.cluster.sweep(rundir.attempt_folder(run.path, run.attempt))
        return self.reader.read()


def _way_to_change(run: RunSummary) -> str:
    """From where a run of another cluster can be ended or started again."""
    from rltui.cluster.profiles import load_profiles

    if run.cluster == LOCAL:
        return "It runs on the machine that sees this disk: log in there and use rltui on it."
    if run.cluster in load_profiles().by_name:
        return f"Add --cluster {run.cluster}, or name no cluster."
    return f"No profile here is called {run.cluster!r}: `rltui setup {run.cluster} …` makes one."


@contextmanager
def open_context(cluster_name: str = LOCAL, prompter: Prompter | None = None) -> Iterator[Context]:
    """A context for the length of a verb."""
    context = Context(cluster_name, prompter)
    try:
        yield context
    finally:
        context.close()


def find_run(runs: Sequence[RunSummary], word: str) -> RunSummary:
    """The run among ``runs`` (newest first) that ``word`` names: its id, a unique prefix, or a layout's name.

    ``@CLUSTER`` behind it says which of two with one id is meant. A colleague's is meant only where none of the
    user's own is.

    Raises:
        UsageError: No run, or more than one, is meant.
    """
    matches = _matches([run for run in runs if not run.owner], word) or _matches(runs, word)
    if len(matches) == 1:
        return matches[0]
    if not matches:
        hint = "`rltui ps` lists the runs." if runs else "There are no runs yet: rltui launch local/grpo-tiny"
        raise UsageError(f"No run is called {word[:80]!r}.", hint)
    names = names_of(run.identity for run in matches[:5]).values()
    raise UsageError(f"{word[:80]!r} could be {', '.join(names)}.", "Write one of these, or more of the id.")


def _matches(runs: Sequence[RunSummary], word: str) -> list[RunSummary]:
    name, _, cluster = word.partition("@")
    named = (run for run in runs if run.name == name and cluster in ("", run.identity.cluster))
    exact = [run for run in runs if run.identity.is_called(word)] or [*named][:1]
    return exact or [run for run in runs if run.identity.may_be_called(word)]
