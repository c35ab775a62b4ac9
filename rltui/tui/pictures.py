"""The newest pictures of all runs and of some runs, and how old they are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

from rltui.service.cockpit import ClusterSummary, WhyReport
from rltui.tui.refresh import Source, freshness
from rltui.tui.views.bars import Health
from rltui.watch.snapshots import RunIdentity, RunSnapshot, RunsSnapshot, RunSummary, names_of

KEPT_RUNS = 8
"""Runs whose newest picture is kept, so that moving back to one shows it at once."""


class Pictures:
    """What the cockpit knows.

    Args:
        clock: Seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._received: dict[Source, float] = dict.fromkeys(("runs", "peek", "run"), clock())
        self._known: OrderedDict[RunIdentity, RunSnapshot] = OrderedDict()
        self.runs = RunsSnapshot()
        self.clusters: tuple[ClusterSummary, ...] = ()
        self._reports: OrderedDict[RunIdentity, WhyReport] = OrderedDict()

    def take_runs(self, snapshot: RunsSnapshot) -> None:
        """Keep a picture of all runs."""
        self.runs = snapshot
        self._received["runs"] = self._clock()

    def take_run(self, snapshot: RunSnapshot) -> None:
        """Keep a picture of one run, and forget the one that was kept longest."""
        run = snapshot.summary.identity
        self._known[run] = snapshot
        self._known.move_to_end(run)
        while len(self._known) > KEPT_RUNS:
            self._known.popitem(last=False)
        self._received["run"] = self._received["peek"] = self._clock()

    def run(self, run: RunIdentity | None) -> RunSnapshot | None:
        """The newest picture of a run, if there is one."""
        return self._known.get(run) if run is not None else None

    def take_why(self, report: WhyReport) -> None:
        """Keep a diagnosis of a run, and forget that of the run that was looked at longest ago."""
        self._reports[report.run] = report
        self._reports.move_to_end(report.run)
        while len(self._reports) > KEPT_RUNS:
            self._reports.popitem(last=False)

    def why(self, run: RunIdentity) -> WhyReport | None:
        """The newest diagnosis of a run, if there is one."""
        return self._reports.get(run)

    def away(self, now: float) -> dict[str, float]:
        """Clusters that do not answer → seconds since they did (0 where they never did).

        Args:
            now: Epoch seconds by this machine's clock, as in ``ClusterSummary.answered_at``.
        """
        return {
            cluster.name: max(0.0, now - cluster.answered_at) if cluster.answered_at else 0.0
            for cluster in self.clusters
            if cluster.problem
        }

    @property
    def needs_you(self) -> str:
        """The first cluster that waits for somebody to answer it; empty where none does."""
        return next((cluster.name for cluster in self.clusters if cluster.needs_attention), "")

    def summary(self, run: RunIdentity | None) -> RunSummary | None:
        """The row of a run."""
        return next((row for row in self.runs.runs if row.identity == run), None)

    @property
    def names(self) -> dict[RunIdentity, str]:
        """What each run is called, newest first: its id, with its cluster where another has the same."""
        return names_of(run.identity for run in self.runs.runs)

    def name(self, run: RunIdentity) -> str:
        """What a run is called among all, as a word for the shell."""
        return self.names.get(run, str(run))

    @property
    def num_live(self) -> int:
        """Number of runs that have not ended."""
        return sum(run.is_live for run in self.runs.runs)

    def health(
        self,
        source: Source,
        periods: Mapping[Source, float],
        paused: bool,
        readonly: bool,
        run: RunIdentity | None = None,
    ) -> Health:
        """How fresh the data of a source are, given the seconds between its reads, and what is wrong with them."""
        age_s = self._clock() - self._received[source]
        known = self.run(run)
        # a cluster that is away stands in the header by its name already
        of_list = self.runs.problem if run is None and not any(cluster.problem for cluster in self.clusters) else ""
        problem = known.problem if known is not None else of_list
        return Health(freshness(age_s, periods[source]), age_s, paused, readonly, problem)
