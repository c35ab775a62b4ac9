"""What a screen may ask for: the same services that the headless verbs use.

Every method may block (files, relay, HTTP), so the TUI calls them in worker threads only.

What launches, resubmits and tells is imported by the first who asks for it: the cockpit opens without it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.cluster.prompts import Prompter, SwitchedPrompter
from rltui.errors import ClusterError
from rltui.runs.script_job import is_script
from rltui.service.all_clusters import AllClusters
from rltui.service.failures import FailureWords, failure_of
from rltui.service.run_reading import RunReading, stragglers_in
from rltui.service.sweep_points import NO_SWEEP, Sweep
from rltui.watch.run_watcher import RunWatcher
from rltui.watch.snapshots import RunIdentity, RunSnapshot, RunsSnapshot, RunSummary

if TYPE_CHECKING:
    from rltui.layout.fields import Field
    from rltui.service.cluster_queue import ClusterQueue
    from rltui.service.cockpit import ActionPreview, Ask, ClusterSummary, OpenJob
    from rltui.service.context import Context
    from rltui.service.launch_review import LaunchReview, PresetSummary
    from rltui.service.node_shell import NodeShell
    from rltui.service.review import LaunchOutlook
    from rltui.service.run_events import Event
    from rltui.watch.node_samples import RoleMemory

PATIENCE_S = 1.0
"""How long one picture of all runs waits for the slowest cluster; what comes later is in the next picture."""

CONNECT_S = 600.0


class LiveCockpit(RunReading):
    """The services on all clusters; safe to call from several threads.

    A run that is not there raises ``RltuiError``.
    """

    def __init__(self) -> None:
        self._prompter = SwitchedPrompter()
        self._clusters = AllClusters(prompter=self._prompter)
        self._failures = FailureWords(self._failure, self._symptom)
        self._last = RunsSnapshot()
        self._rows: dict[RunIdentity, RunSummary] = {}
        self._watchers: dict[str, tuple[str, RunIdentity, RunWatcher]] = {}
        """By use: the run that is watched, and the one that is drawn beside it."""
        self._estimated: tuple[tuple[RunIdentity, int] | None, tuple[RoleMemory, ...] | None] = (None, None)
        self._connecting = ""
        self._watch_locks = {"watched": threading.Lock(), "beside": threading.Lock()}

    def runs(self) -> RunsSnapshot:
        """All runs of all clusters, newest first; while the user answers one cluster, no other is asked."""
        if not self._connecting:
            snapshot = self._clusters.runs(PATIENCE_S)
            problem = "; ".join(filter(None, (snapshot.problem, snapshot.scheduler_problem)))
            self._last = structs.replace(snapshot, runs=self._failures.fill(snapshot.runs), problem=problem)
            self._rows = {run.identity: run for run in self._last.runs}
        return self._last

    def want_gpus(self, *, on: bool) -> None:
        """Whether rows of live runs are to tell how busy their GPUs are, which has to be read; asks nobody itself."""
        self._clusters.want_gpus(on)

    def watch(self, run: RunIdentity, log: str = "") -> RunSnapshot:
        """A fresh picture of one run; reads only what is new since the last call.

        Args:
            run: The run.
            log: Which of its logs is wanted, by the name in ``LogFile``; empty: its own output; ``*``: all.
        """
        return self._look("watched", run, log)

    def beside(self, run: RunIdentity) -> RunSnapshot:
        """A picture of a run that another is compared with; the one that is watched stays the watched one."""
        return self._look("beside", run, "")

    def _look(self, use: str, run: RunIdentity, log: str) -> RunSnapshot:
        with self._watch_locks[use]:
            row = self._row(run)
            if self._connecting not in ("", row.reader):
                raise ClusterError(f"{row.reader} is not asked while {self._connecting} waits for your answer.")
            context = self._clusters.context(row.reader)
            watcher = self._watchers.get(use)
            if watcher is None or watcher[:2] != (row.reader, run):
                watcher = (row.reader, run, RunWatcher(context.cluster.client, row.path))
                self._watchers[use] = watcher
            picture = watcher[2].snapshot(log)
            memory = self._role_memory(context, run, picture) if use == "watched" else ()
        slow = stragglers_in(picture) if use == "watched" else frozenset()
        joined = _joined(context, picture, row)
        return structs.replace(picture, summary=joined, role_memory=memory, stragglers=slow)

    def _role_memory(self, context: Context, run: RunIdentity, picture: RunSnapshot) -> tuple[RoleMemory, ...]:
        """What was estimated for the roles of the watched attempt; not in its first picture, which must not wait."""
        attempt = (run, picture.summary.attempt)
        if attempt != self._estimated[0]:
            self._estimated = (attempt, None)
        elif self._estimated[1] is None and any(host.gpus for host in picture.hosts):
            from rltui.service.memory_peaks import role_memory

            self._estimated = (attempt, role_memory(context, picture.summary))
        return self._estimated[1] or ()

    def presets(self) -> tuple[PresetSummary, ...]:
        """The presets that can be launched, and the scripts of this folder."""
        from rltui.service.presets import preset_summaries, scripts_here

        return (*preset_summaries(), *scripts_here())

    def clusters(self) -> tuple[ClusterSummary, ...]:
        """The clusters of the user's profiles, ``local`` first; reads files only, never the network."""
        return self._clusters.summaries()

    def connect(self, cluster: str, prompter: Prompter) -> str:
        """Connect to a cluster that needs somebody; only its own questions are shown."""
        reader = self._clusters.reader(cluster)
        self._connecting = cluster
        try:
            with self._prompter.attend(prompter):
                reader.wait(CONNECT_S)  # one that began unattended is refused soon, and would stand for the new one
                reader.context.close()  # what failed before is forgotten, so that it may be tried again
                reader.start()
                reader.wait(CONNECT_S)
        finally:
            self._connecting = ""
        if reader.problem:
            raise ClusterError(reader.problem)
        return f"{cluster} answers."

    def review(
        self, preset: str, overrides: tuple[str, ...] = (), cluster: str = "local", sweep: Sweep = NO_SWEEP
    ) -> LaunchReview:
        """Check ``preset``, or the file of that path, with ``overrides``, as each run of ``sweep``.

        Errors in these are findings. Overrides are ``key.path=value``; of a script, what stands behind it in
        ``rltui launch --script``.
        """
        from rltui.service.review import review_launch

        profile = self._clusters.profiles.get(cluster)
        # a cluster that has not answered yet is not asked here: the review is not to wait for it
        context = self._clusters.context(cluster) if self._clusters.has_answered(cluster) else None
        return review_launch(profile, preset, overrides, context, sweep)

    def outlook(self, preset: str, overrides: tuple[str, ...] = (), cluster: str = "local") -> LaunchOutlook:
        """When that launch would start, and what is different from the last run of that name; asks the cluster."""
        from rltui.service.review import LaunchOutlook, outlook

        if not self._clusters.has_answered(cluster):
            problem = f"{cluster} has not answered yet"
            return LaunchOutlook(preset=preset, overrides=overrides, cluster=cluster, problem=problem)
        return outlook(self._clusters.context(cluster), preset, overrides, self._last.runs)

    def fields(self, preset: str, overrides: tuple[str, ...] = ()) -> tuple[Field, ...]:
        """Every key of ``preset``, or of the layout of that path: what it means, takes and is with ``overrides``.

        Raises:
            LayoutError: It is no layout.
        """
        from rltui.layout.fields import read_fields
        from rltui.layout.presets import resolve

        return read_fields(resolve(preset), overrides)

    def launch(
        self,
        preset: str,
        overrides: tuple[str, ...] = (),
        cluster: str = "local",
        sweep: Sweep = NO_SWEEP,
        auto: bool = False,
    ) -> tuple[RunIdentity, ...]:
        """Launch, in hands-off mode if ``auto``, or all runs of a sweep; returns which runs these are.

        Raises:
            RltuiError: A finding stands in the way, or the submission failed.
        """
        context = self._clusters.context(cluster)
        if sweep.words:
            from rltui.service.sweep import launch_sweep

            launched = launch_sweep(context, preset, overrides, sweep)
            return tuple(RunIdentity(cluster, one.run_id) for one in launched)
        if is_script(preset):
            from rltui.service.scripts import launch_words

            run = RunIdentity(cluster, launch_words(context, preset, overrides).run_id)
        else:
            from rltui.service.launch import launch

            run = RunIdentity(cluster, launch(context, preset, overrides).run_id)
        if auto:
            from rltui.service.asked import let_go_on

            let_go_on(*self._clusters.find(str(run)))
        return (run,)

    def open_jobs(self) -> tuple[OpenJob, ...]:
        """The user's jobs that are no runs; where one cluster is away, those of the others."""
        from rltui.service.adopt import jobs_of

        found, problems = jobs_of(self._clusters)
        if problems and not found:
            raise ClusterError("; ".join(problems))
        return tuple(found)

    def queue(self, cluster: str, *, again: bool = False) -> ClusterQueue:
        """Everybody's jobs on a cluster; asks it no more often than its scheduler may be asked.

        Args:
            cluster: Which.
            again: Somebody does not want to wait for the next look.

        Raises:
            UsageError: There is no such cluster.
        """
        return self._clusters.context(cluster).queue.look(again=again)

    def adopt(self, cluster: str, job_id: str) -> str:
        """Make a run of a job without touching it; returns the run's id.

        Raises:
            RltuiError: It has ended, or is a run already.
        """
        from rltui.service.adopt import adopt_job

        return adopt_job(self._clusters.context(cluster), job_id).run_id

    def node_shell(self, run: RunIdentity, node: str = "") -> NodeShell:
        """A shell where a run is, on one of its nodes.

        Raises:
            RltuiError: The run has no such node now.
        """
        from rltui.service.node_shell import node_shell

        return node_shell(*self._clusters.find(str(run)), node)

    def preview(self, ask: Ask) -> ActionPreview:
        """What an action would do to the one run that it is for.

        A resubmission says from which checkpoint it would go on, and ends a live run first. One with less memory has
        the change that lowers the peak which stands in this run's way, found from its placement: where engine and
        trainer do not share a GPU, a lower ``memory_utilization`` cannot help the trainer, so another lever is
        offered, and that said. A fix is one change for everything that is known to be wrong with the run, with a
        sentence a cause; that of hands-off mode tells what it has done so far.
        """
        from rltui.service import asked

        shown = asked.preview(*self._clusters.find(str(ask.run)), ask)
        if not any(run.run_id == ask.run.run_id and run != ask.run for run in self._rows):
            return shown
        which = f"it is the one on {ask.run.cluster}: another cluster has a run of the same id"
        return structs.replace(shown, consequences=(which, *shown.consequences))

    def carry_out(self, ask: Ask, shown: ActionPreview) -> str:
        """Do exactly what was shown of it; returns one sentence on what was done."""
        from rltui.service import asked

        return asked.carry_out(*self._clusters.find(str(ask.run)), ask, shown)

    def terminal(self, event: Event) -> str:
        """What a terminal is to be sent for this event: ``bell``, ``osc9``, ``osc777`` or ``none``; asks nobody."""
        from rltui.service.telling import terminal_of

        return terminal_of(self._clusters.profiles.by_name.get(event.run.cluster), event.kind)

    def tell(self, event: Event) -> str:
        """Tell people of a run of the user's own clusters, each event once."""
        from rltui.service.telling import tell_event

        if event.run.through or event.run.cluster not in self._clusters.profiles.by_name:
            return ""
        results = tell_event(self._clusters.context(event.run.cluster).cluster, event)
        return "; ".join(f"not told by {one.channel}: {one.detail}" for one in results if not one.ok)

    def close(self) -> None:
        """End the relays of all clusters; runs go on."""
        self._clusters.close()

    def _row(self, run: RunIdentity) -> RunSummary:
        """The newest row of a run; one that no list has shown yet is looked for."""
        return self._rows.get(run) or self._clusters.find(str(run))[1]

    def _found(self, run: RunIdentity) -> tuple[Context, RunSummary]:
        row = self._row(run)
        return self._clusters.context(row.reader), row

    def _failure(self, run: RunSummary) -> str:
        return failure_of(self._clusters.context(run.reader), run)

    def _symptom(self, run: RunSummary) -> str:
        from rltui.service.symptoms import symptom_word

        return symptom_word(run, self._clusters.context(run.reader).reader)


def _joined(context: Context, picture: RunSnapshot, row: RunSummary) -> RunSummary:
    """The run as its directory tells, with what only the scheduler and the list of runs know."""
    known = {name: getattr(row, name) for name in ("cluster", "through", "owner", "submission")}
    run = structs.replace(picture.summary, **known)
    if run.attempt == row.attempt:
        run = structs.replace(run, failure=row.failure, symptom=row.symptom, unfinished=row.unfinished)
        run = structs.replace(run, no_step_s=row.no_step_s, usual_step_s=row.usual_step_s)
    try:
        [run] = context.jobs.told(RunsSnapshot(runs=(run,), taken_at=picture.taken_at)).runs
    except ClusterError:
        run = structs.replace(run, job=row.job, scheduler_says=row.scheduler_says)
    return run
