"""Runs from Python: launch, watch, explain, mend, as plain data. For notebooks, scripts and agents.

    import rltui.api as rltui

    with rltui.open() as session:
        run = session.launch("grpo-tiny", "train.steps=50")
        for picture in run.watch():
            print(picture.summary.stage.step, picture.metrics.latest.get("reward"))
        if run.summary.state == "failed":
            print([found.id for found in run.why()])

Everything that comes back is a frozen ``msgspec.Struct``; ``to_dict`` makes dicts and lists of it. Whoever calls this
has decided: nothing asks. What the shell asks before it does it is refused here until an argument says so. It takes
neither torch, ray nor Textual to import. Names of this module and fields that it gives follow semantic versioning.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import structs

from rltui.check.findings import Finding
from rltui.check.run import Report
from rltui.cluster.profile import LOCAL, Profile
from rltui.cluster.relay_client import RelayClient
from rltui.diagnose.verdicts import Diagnosis
from rltui.errors import ClusterError, RltuiError, UsageError
from rltui.onnode import rundir
from rltui.service.all_clusters import AllClusters
from rltui.service.compare import Comparison, compare, read_side
from rltui.service.context import Context
from rltui.service.hands_off_rules import Policy
from rltui.service.hands_off_switch import is_over, require_sound, switch_on
from rltui.service.launch import RefusedError
from rltui.service.one_fix import Fix
from rltui.service.submit import Launched
from rltui.service.wishes import Wishes, with_words
from rltui.watch.log_search import LogHit, LogQuery
from rltui.watch.run_watcher import RunWatcher
from rltui.watch.snapshots import MetricsSnapshot, RunHistory, RunSnapshot, RunSummary

__all__ = [
    "ClusterError",
    "Comparison",
    "Diagnosis",
    "Finding",
    "Fix",
    "LogHit",
    "MetricsSnapshot",
    "Policy",
    "RefusedError",
    "Report",
    "RltuiError",
    "Run",
    "RunHistory",
    "RunSnapshot",
    "RunSummary",
    "Session",
    "UsageError",
    "Wishes",
    "open",
    "to_dict",
]

PERIOD_S = 2.0


def to_dict(value: object) -> Any:
    """A struct of this module, or a tuple of them, as dicts, lists and numbers, as ``--json`` prints it."""
    return msgspec.to_builtins(value)


@contextmanager
def open(*clusters: str) -> Iterator[Session]:
    """A session with the clusters of these names, or with all of the user's profiles.

    Each is connected to when something of it is first asked; connections are shared, and end with the session. A
    cluster that would ask for a password is away: connect to it in the shell first.

    Raises:
        UsageError: There is no such cluster.
    """
    opened = AllClusters(clusters or None)
    try:
        yield Session(opened)
    finally:
        opened.close()


class Session:
    """Clusters and their runs; made by ``open``. For one thread at a time."""

    def __init__(self, clusters: AllClusters) -> None:
        self._clusters = clusters

    @property
    def clusters(self) -> tuple[str, ...]:
        """Names of the clusters that ``open`` and ``runs`` may be asked for; ``local`` is the first."""
        return self._clusters.names

    def runs(self, where: str = "") -> tuple[RunSummary, ...]:
        """All of the user's runs, newest first; a cluster that is away gives the rows last seen, with ``as_of``.

        Args:
            where: A filter as of ``rltui ps``, such as ``state:failed since:2h``.

        Raises:
            UsageError: The filter cannot be read.
        """
        from rltui.service.run_filter import picked

        found = self._clusters.with_numbers([run for run in self._clusters.runs().runs if not run.owner])
        return tuple(picked(found, where, time.time()) if where else found)

    def run(self, name: str) -> Run:
        """The run that ``name`` means: its id, a unique prefix, or a layout's name (its newest run).

        Raises:
            UsageError: No run, or more than one, is meant.
            ClusterError: Its cluster is away.
        """
        context, summary = self._clusters.find(name)
        return Run(context, summary.run_id)

    def check(self, source: str, *overrides: str, cluster: str = LOCAL) -> Report:
        """Check a preset or layout file for a cluster's profile, which is not asked.

        Raises:
            UsageError: There is no such layout or cluster.
        """
        from rltui.service.launch import review

        return review(source, overrides, self._clusters.profiles.get(cluster))

    def launch(
        self,
        source: str,
        *words: str,
        cluster: str = LOCAL,
        chain: int = 1,
        hands_off: Policy | None = None,
        unchecked: bool = False,
        on_login_node: bool = False,
        wishes: Wishes | None = None,
    ) -> Run:
        """Launch a preset, a layout file, or another system's script; exactly one run comes of it, or an error.

        Args:
            source: The preset's name, or the path of a layout or script.
            words: ``key.path=value`` overrides; of a script its arguments, and ``slurm.key=value``.
            cluster: Where.
            chain: How many Slurm jobs, each after the one before; of layouts.
            hands_off: How the run goes on by itself; None: not at all.
            unchecked: Submit also where the cluster's own word is against it.
            on_login_node: Run on this machine although it is the login node of a Slurm cluster.
            wishes: What else is said of a script.

        Raises:
            RefusedError: Findings stand in its way.
            RltuiError: It was not submitted, or whether it was is unknown; ``rltui ps`` tells later.
        """
        from rltui.runs.script_job import is_script
        from rltui.service.launch import launch

        context = self._clusters.context(cluster)
        _require_consent(context.cluster.profile, source, given=on_login_node)
        if hands_off is not None:
            require_sound(context, hands_off)
        if is_script(source):
            launched = _launch_script(context, source, words, wishes or Wishes(), unchecked=unchecked)
        else:
            launched = launch(context, source, words, chain=chain, unchecked=unchecked)
        if hands_off is not None:
            switch_on(context, context.find(launched.run_id), hands_off)
        return Run(context, launched.run_id)

    def compare(self, *runs: Run, axis: str = "step") -> Comparison:
        """Runs side by side: settings that differ, and metrics at the last point of ``axis`` that all have.

        Args:
            *runs: Two or more; the others are held against the first.
            axis: ``step``, ``time`` (seconds of training) or ``gpu_hours``.

        Raises:
            UsageError: A run has no place on ``axis``.
        """
        return compare([read_side(run._context, run.summary) for run in runs], axis)


class Run:
    """One run; made by a session. Every call looks anew, and costs one or two questions to its cluster.

    Attributes:
        run_id: Its id.
    """

    def __init__(self, context: Context, run_id: str) -> None:
        self.run_id = run_id
        self._context = context

    def __repr__(self) -> str:
        return f"Run({self.run_id!r} on {self.cluster!r})"

    @property
    def cluster(self) -> str:
        """Name of the cluster through which it is read."""
        return self._context.name

    @property
    def summary(self) -> RunSummary:
        """State, stage, step, job and end of the newest attempt.

        Raises:
            ClusterError: The cluster is away.
        """
        return self._context.find(self.run_id)

    def snapshot(self) -> RunSnapshot:
        """Everything that the cockpit shows of it: nodes, GPUs, engines, actors, queues, metrics, the log's end.

        Raises:
            ClusterError: The cluster is away.
        """
        summary = self.summary
        return structs.replace(self._watcher(summary).whole(), summary=summary)

    def watch(self, every_s: float = PERIOD_S) -> Iterator[RunSnapshot]:
        """A picture every so many seconds until the run is over, the last one included; reads only what is new.

        While the cluster is away the last picture comes, with its ``problem``.

        Raises:
            ClusterError: The cluster was away from the start.
        """
        last = self.summary
        watcher = self._watcher(last)
        while True:
            picture, is_last = watcher.snapshot(), False
            try:
                last = self.summary
                is_last = is_over(self._context, last)
            except ClusterError as error:
                picture = structs.replace(picture, problem=error.message)
            yield structs.replace(picture, summary=last)
            if not picture.problem and is_last:
                return
            time.sleep(every_s)

    def wait(self, timeout_s: float | None = None, every_s: float = PERIOD_S) -> RunSummary:
        """Wait until the run is over.

        Raises:
            TimeoutError: It is not, after ``timeout_s`` seconds; until then a cluster that is away is waited for.
            ClusterError: The cluster is away, and there is no ``timeout_s``.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                summary = self.summary
                if is_over(self._context, summary):
                    return summary
            except ClusterError:
                if deadline is None:
                    raise
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"{self.run_id} is not over after {timeout_s:g} s.")
            time.sleep(every_s)

    def metrics(self) -> MetricsSnapshot:
        """Its series over all attempts by canonical name, at every step; those of a picture are thinned."""
        return self._watcher(self.summary).every_step()

    def history(self) -> RunHistory:
        """Where its time went: attempts, queues, goodput, what each loss cost."""
        return self._watcher(self.summary).whole().history

    def why(self, attempt: int = 0) -> tuple[Diagnosis, ...]:
        """What is wrong with it, causes first; empty where nothing is known to be.

        Args:
            attempt: Which attempt; 0: the newest.
        """
        from rltui.service.attempts import at_attempt
        from rltui.service.why import diagnose_run

        run = self.summary
        return diagnose_run(self._context, at_attempt(self._client, run, attempt) if attempt else run)

    def search(self, pattern: str, log: str = rundir.OUT_LOG) -> Iterator[LogHit]:
        """Lines of a whole log of the newest attempt with a regular expression, searched where the log lies."""
        from rltui.service.describe import attempt_path
        from rltui.watch.log_search import query_of, search_log

        for piece in search_log(self._client, attempt_path(self.summary), log, query_of(pattern) or LogQuery("")):
            yield from piece.hits

    def cancel(self) -> str:
        """End it; what was done, in a sentence. It gets its time to save; ``wait`` tells when it is over.

        Raises:
            RltuiError: It is over already, or is not yours to end.
        """
        from rltui.service.actions import cancel

        return cancel(self._context, self.summary)

    def resubmit(
        self, *overrides: str, exclude: Sequence[str] = (), cancel_first: bool = False, on_login_node: bool = False
    ) -> str:
        """Start it again from its newest complete checkpoint; where it goes on, in words.

        Args:
            overrides: What changes, from now on.
            exclude: Nodes to keep away from, from now on.
            cancel_first: End it if it is alive, or if nobody knows whether it is.
            on_login_node: As in ``Session.launch``.

        Raises:
            RefusedError: Findings stand in its way.
            RltuiError: It is alive and is not to be ended, or was not submitted.
        """
        from rltui.service.resubmit import resubmit

        run = self.summary
        _require_consent(self._context.cluster.profile, self.run_id, given=on_login_node)
        if run.state == "unknown" and not cancel_first:
            raise UsageError(f"Whether {self.run_id} is over is not known.", "cancel_first=True ends what there is.")
        return resubmit(self._context, run, overrides, exclude, cancel_first=cancel_first).start

    def proposed_fix(self, *overrides: str, exclude: Sequence[str] = ()) -> Fix:
        """One change for all that ``why`` finds; nothing is done.

        Raises:
            RltuiError: Nothing that rltui could change mends it.
        """
        from rltui.service.one_fix import compose_fix

        return compose_fix(self._context, self.summary, overrides, exclude)

    def fix(self, fix: Fix | None = None, *, on_login_node: bool = False) -> str:
        """Carry out a proposed fix, or what ``proposed_fix`` says now: end it if it is alive, change it, start it."""
        from rltui.service.one_fix import carry_out

        fix = fix or self.proposed_fix()
        _require_consent(self._context.cluster.profile, self.run_id, given=on_login_node)
        return carry_out(self._context, self.summary, fix, cancel_first=True).start

    @property
    def _client(self) -> RelayClient:
        return self._context.cluster.client

    def _watcher(self, run: RunSummary) -> RunWatcher:
        return RunWatcher(self._client, run.path)


def _require_consent(profile: Profile, what: str, *, given: bool) -> None:
    from rltui.service.this_machine import here_instead_of_slurm

    said = () if given else here_instead_of_slurm(profile)
    if said:
        raise UsageError(f"{what} was not started: {said[0]}.", "on_login_node=True starts it all the same.")


def _launch_script(context: Context, source: str, words: Sequence[str], wishes: Wishes, *, unchecked: bool) -> Launched:
    from rltui.service.scripts import launch_script, prepare

    told = with_words(wishes, words)
    prepared = prepare(source, told, context.cluster.profile)
    return launch_script(context, prepared, anyway=told.anyway, unchecked=unchecked)
