"""What every service needs: a cluster, the journal, and the runs there."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.cluster.local import LocalCluster
from rltui.cluster.open_cluster import open_cluster
from rltui.cluster.profile import LOCAL
from rltui.errors import ClusterError
from rltui.onnode import rundir
from rltui.paths import state_dir
from rltui.runs.journal import Journal
from rltui.service.naming import find_run
from rltui.service.recover import Recoverer
from rltui.service.run_jobs import with_jobs
from rltui.watch.runs import RunsReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rltui.cluster.cluster import Cluster
    from rltui.cluster.prompts import Prompter
    from rltui.watch.snapshots import RunsSnapshot, RunSummary


class Context:
    """One cluster with its runs, and the user's journal. It connects when something is first asked of it.

    Args:
        cluster_name: Which cluster.
        prompter: Who answers when the way there asks something; None: nobody.
        cluster: The cluster itself, where somebody has opened it already.

    Raises:
        UsageError: No cluster has this name.
    """

    def __init__(
        self, cluster_name: str = LOCAL, prompter: Prompter | None = None, cluster: Cluster | None = None
    ) -> None:
        self.cluster = cluster or open_cluster(cluster_name, prompter)
        self.name = self.cluster.name
        self.journal = Journal(state_dir())
        self.recoverer = Recoverer(self)
        self.failed_nodes: dict[str, tuple[str, ...]] = {}
        """Nodes that failed, by the attempt's directory: found out once."""
        self._reader: RunsReader | None = None

    @property
    def reader(self) -> RunsReader:
        """The reader of the run root.

        Raises:
            ClusterError: The cluster cannot be reached.
        """
        if self._reader is None:
            self._reader = RunsReader(self.cluster.client, self.cluster.run_root)
        return self._reader

    def runs(self) -> RunsSnapshot:
        """All runs, newest first, after looking after unfinished submissions.

        Where the cluster is away, the runs last seen come with the problem.

        Raises:
            ClusterError: The cluster was away from the start.
        """
        unsettled = self.recoverer.recover()
        snapshot = self._swept(self.reader.read())
        runs = tuple(structs.replace(run, cluster=self.name) for run in snapshot.runs)
        snapshot = structs.replace(snapshot, runs=runs)
        if not snapshot.problem:
            snapshot = with_jobs(self, snapshot)
        return self.recoverer.explained(snapshot, unsettled)

    def find(self, word: str) -> RunSummary:
        """The run of this cluster that ``word`` names: its id, a unique prefix, or a layout's name (its newest run).

        Raises:
            UsageError: No run, or more than one, is meant.
            ClusterError: The cluster cannot be reached.
        """
        snapshot = self.runs()
        if snapshot.problem:
            raise ClusterError(snapshot.problem)
        return find_run(snapshot.runs, word)

    def close(self) -> None:
        """End the relay."""
        self.cluster.close()

    def _swept(self, snapshot: RunsSnapshot) -> RunsSnapshot:
        """``snapshot`` after what supervisors that vanished without a word have left was ended."""
        lost = [run for run in snapshot.runs if run.state == "lost" and run.end is None]
        if not lost or not isinstance(self.cluster, LocalCluster):
            return snapshot
        for run in lost:
            attempt = rundir.attempt_folder(run.path, run.attempt)
            self.cluster.sweep(attempt, self.cluster.supervisor(attempt).uuid)
        return self.reader.read()


@contextmanager
def open_context(cluster_name: str = LOCAL, prompter: Prompter | None = None) -> Iterator[Context]:
    """A context for the length of a verb."""
    context = Context(cluster_name, prompter)
    try:
        yield context
    finally:
        context.close()
