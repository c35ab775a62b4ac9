"""What every service needs: the cluster, the journal, and how a user's word becomes a run."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rltui.cluster.local import LocalCluster
from rltui.errors import UsageError
from rltui.onnode import rundir
from rltui.paths import state_dir
from rltui.runs.journal import Journal
from rltui.watch.runs import RunsReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rltui.watch.snapshots import RunsSnapshot, RunSummary

CLUSTERS = ("local",)


class Context:
    """An open cluster with its runs and the user's journal.

    Args:
        cluster_name: Which cluster to open.

    Raises:
        UsageError: No cluster has this name.
    """

    def __init__(self, cluster_name: str = "local") -> None:
        if cluster_name not in CLUSTERS:
            known = ", ".join(CLUSTERS)
            raise UsageError(f"There is no cluster {cluster_name[:60]!r}.", f"Known: {known}.")
        self.cluster = LocalCluster()
        self.journal = Journal(state_dir())
        self.reader = RunsReader(self.cluster.client, self.cluster.run_root)

    def runs(self) -> RunsSnapshot:
        """All runs, newest first; a run whose supervisor vanished without a word is swept and shown as lost."""
        snapshot = self.reader.read()
        lost = [run for run in snapshot.runs if run.state == "lost" and run.end is None]
        for run in lost:
            attempt = rundir.attempt_folder(run.path, run.attempt)
            self.cluster.sweep(attempt, self.cluster.supervisor(attempt).uuid)
        return self.reader.read() if lost else snapshot

    def find(self, word: str) -> RunSummary:
        """The run that ``word`` names: its id, a unique prefix of it, or a layout's name (its newest run).

        Raises:
            UsageError: No run, or more than one, is meant.
        """
        runs = self.runs().runs
        exact = [run for run in runs if run.run_id == word] or [run for run in runs if run.name == word][:1]
        matches = exact or [run for run in runs if word and run.run_id.startswith(word)]
        if len(matches) == 1:
            return matches[0]
        if not matches:
            hint = "`rltui ps` lists the runs." if runs else "There are no runs yet: rltui launch local/grpo-tiny"
            raise UsageError(f"No run is called {word[:80]!r}.", hint)
        raise UsageError(f"{word!r} could be {', '.join(run.run_id for run in matches[:5])}.", "Write more of the id.")

    def close(self) -> None:
        """End the relay."""
        self.cluster.close()


@contextmanager
def open_context(cluster_name: str = "local") -> Iterator[Context]:
    """A context for the length of a verb."""
    context = Context(cluster_name)
    try:
        yield context
    finally:
        context.close()
