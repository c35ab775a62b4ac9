"""The real thing behind the cockpit's screens: the same services that the headless verbs use."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.cluster.prompts import SwitchedPrompter
from rltui.errors import ClusterError
from rltui.runs.script_job import is_script
from rltui.service import actions, resubmit
from rltui.service.all_clusters import AllClusters
from rltui.service.failures import FailureWords
from rltui.service.launch import launch
from rltui.service.log_stream import read_piece, search_run
from rltui.service.presets import preset_summaries, scripts_here
from rltui.service.review import review_launch
from rltui.service.telling import tell_event, terminal_of
from rltui.watch.log_part import read_part
from rltui.watch.run_watcher import RunWatcher
from rltui.watch.snapshots import RunsSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rltui.cluster.prompts import Prompter
    from rltui.service.cluster_queue import ClusterQueue
    from rltui.service.cockpit import ActionPreview, ClusterSummary, LaunchReview, OpenJob, PresetSummary, WhyReport
    from rltui.service.config import RunConfig
    from rltui.service.context import Context
    from rltui.service.run_events import Event
    from rltui.watch.log_search import LogQuery, Searched
    from rltui.watch.samples import Sample, SampleGroup, SampleQuery, SamplesFound
    from rltui.watch.snapshots import LogPart, RunSnapshot, RunSummary

PATIENCE_S = 1.0
"""How long one picture of all runs waits for the slowest cluster; what comes later is in the next picture."""

CONNECT_S = 600.0


class LiveCockpit:
    """Implements ``rltui.service.cockpit.Cockpit`` on all clusters; safe to call from several threads."""

    def __init__(self) -> None:
        self._prompter = SwitchedPrompter()
        self._clusters = AllClusters(prompter=self._prompter)
        self._failures = FailureWords(self._failure, self._symptom)
        self._last = RunsSnapshot()
        self._rows: dict[str, RunSummary] = {}
        self._watcher: tuple[str, str, RunWatcher] | None = None
        self._connecting = ""
        self._watch_lock = threading.Lock()

    def runs(self) -> RunsSnapshot:
        """All runs of all clusters, newest first; while the user answers one cluster, no other is asked."""
        if not self._connecting:
            snapshot = self._clusters.runs(PATIENCE_S)
            problem = "; ".join(filter(None, (snapshot.problem, snapshot.scheduler_problem)))
            self._last = structs.replace(snapshot, runs=self._failures.fill(snapshot.runs), problem=problem)
            self._rows = {run.run_id: run for run in self._last.runs}
        return self._last

    def want_gpus(self, *, on: bool) -> None:
        """Let rows of live runs tell how busy their GPUs are, or no more."""
        self._clusters.want_gpus(on)

    def watch(self, run_id: str, log: str = "") -> RunSnapshot:
        """A fresh picture of one run."""
        with self._watch_lock:
            row = self._row(run_id)
            if self._connecting not in ("", row.reader):
                raise ClusterError(f"{row.reader} is not asked while {self._connecting} waits for your answer.")
            context = self._clusters.context(row.reader)
            if self._watcher is None or self._watcher[:2] != (row.reader, run_id):
                self._watcher = (row.reader, run_id, RunWatcher(context.cluster.client, row.path))
            picture = self._watcher[2].snapshot(log)
        return structs.replace(picture, summary=_joined(context, picture, row))

    def log_part(self, run_id: str, name: str, line: int, offset: int | None = None) -> LogPart:
        """The piece of a log around ``line``."""
        row = self._row(run_id)
        client = self._clusters.context(row.reader).cluster.client
        return read_part(client, actions.attempt_path(row), name, line, offset)

    def log_piece(self, run_id: str, name: str, place: Mapping[str, int] | None, at: float | None = None) -> LogPart:
        """A piece of the logs around a place."""
        row = self._row(run_id)
        return read_piece(self._clusters.context(row.reader).cluster.client, row, name, place, at)

    def search_log(self, run_id: str, name: str, query: LogQuery) -> Iterator[Searched]:
        """Search a whole log, or all of them, piece by piece."""
        row = self._row(run_id)
        return search_run(self._clusters.context(row.reader).cluster.client, row, name, query)

    def samples(self, run_id: str, query: SampleQuery) -> Iterator[SamplesFound]:
        """Search the samples of a run, piece by piece."""
        from rltui.service.samples import samples_of

        row = self._row(run_id)
        return samples_of(self._clusters.context(row.reader), row, query)

    def sample(self, run_id: str, sample: Sample, evaluation: bool = False) -> SampleGroup:
        """A sample in full, with its siblings."""
        from rltui.service.samples import group_of

        row = self._row(run_id)
        return group_of(self._clusters.context(row.reader), row, sample, evaluation=evaluation)

    def config(self, run_id: str) -> RunConfig:
        """Every setting of a run, and where it comes from."""
        from rltui.service.config import read_config

        row = self._row(run_id)
        return read_config(self._clusters.context(row.reader), row)

    def presets(self) -> tuple[PresetSummary, ...]:
        """The presets that can be launched, and the scripts of this folder."""
        return (*preset_summaries(), *scripts_here())

    def clusters(self) -> tuple[ClusterSummary, ...]:
        """The clusters of the user's profiles."""
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

    def review(self, preset: str, overrides: tuple[str, ...] = (), cluster: str = "local") -> LaunchReview:
        """Check ``preset`` with ``overrides``, and write the script that ``cluster`` would get."""
        profile = self._clusters.profiles.get(cluster)
        # a cluster that has not answered yet is not asked here: the review is not to wait for it
        context = self._clusters.context(cluster) if self._clusters.has_answered(cluster) else None
        return review_launch(profile, preset, overrides, context)

    def launch(self, preset: str, overrides: tuple[str, ...] = (), cluster: str = "local", auto: bool = False) -> str:
        """Launch, in hands-off mode if ``auto``, and return the run's id."""
        context = self._clusters.context(cluster)
        if is_script(preset):
            from rltui.service.scripts import launch_words

            run_id = launch_words(context, preset, overrides).run_id
        else:
            run_id = launch(context, preset, overrides).run_id
        if auto:
            self.auto(run_id, on=True)
        return run_id

    def open_jobs(self) -> tuple[OpenJob, ...]:
        """The user's jobs that are no runs; where one cluster is away, those of the others."""
        from rltui.service.adopt import jobs_of

        found, problems = jobs_of(self._clusters)
        if problems and not found:
            raise ClusterError("; ".join(problems))
        return tuple(found)

    def queue(self, cluster: str, *, again: bool = False) -> ClusterQueue:
        """Everybody's jobs on a cluster."""
        return self._clusters.context(cluster).queue.look(again=again)

    def adopt(self, cluster: str, job_id: str) -> str:
        """Make a run of a job."""
        from rltui.service.adopt import adopt_job

        return adopt_job(self._clusters.context(cluster), job_id).run_id

    def preview_cancel(self, run_id: str) -> ActionPreview:
        """What cancelling would do."""
        return actions.preview_cancel(*self._clusters.find(run_id))

    def cancel(self, run_id: str) -> str:
        """Cancel."""
        return actions.cancel(*self._clusters.find(run_id))

    def preview_resubmit(
        self, run_id: str, overrides: tuple[str, ...] = (), exclude: tuple[str, ...] = ()
    ) -> ActionPreview:
        """What resubmitting would do."""
        return resubmit.preview_resubmit(*self._clusters.find(run_id), overrides, exclude)

    def preview_lower_memory(self, run_id: str) -> ActionPreview:
        """The change that lowers the memory peak in this run's way."""
        from rltui.service.fixes import lower_memory

        context, run = self._clusters.find(run_id)
        fix = lower_memory(context, run)
        preview = resubmit.preview_resubmit(context, run, fix.overrides)
        title = f"Lower the memory peak of {run.run_id} and resubmit it?"
        return structs.replace(preview, title=title, consequences=(*fix.words, *preview.consequences))

    def preview_fix(self, run_id: str) -> ActionPreview:
        """What mends everything that is known to be wrong with this run."""
        from rltui.service.one_fix import compose_fix, preview_fix

        context, run = self._clusters.find(run_id)
        return preview_fix(context, run, compose_fix(context, run))

    def preview_auto(self, run_id: str) -> ActionPreview:
        """What switching hands-off mode of this run would do."""
        from rltui.service.hands_off_switch import preview_switch

        return preview_switch(*self._clusters.find(run_id))

    def auto(self, run_id: str, *, on: bool) -> str:
        """Switch hands-off mode of a run."""
        from rltui.service.hands_off_rules import Policy
        from rltui.service.hands_off_switch import switch_off, switch_on

        context, run = self._clusters.find(run_id)
        return switch_on(context, run, Policy()) if on else switch_off(context, run)

    def resubmit(self, run_id: str, overrides: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> str:
        """Start a new attempt of the run; a live one is ended first, as its preview said."""
        context, run = self._clusters.find(run_id)
        launched = resubmit.resubmit(context, run, overrides, exclude, cancel_first=True)
        return f"Attempt {launched.attempt} of {launched.run_id} is on its way."

    def terminal(self, event: Event) -> str:
        """What this terminal is sent for an event."""
        return terminal_of(self._clusters.profiles.by_name.get(event.run.cluster), event.kind)

    def tell(self, event: Event) -> str:
        """Tell people of a run of the user's own clusters, each event once."""
        if event.run.through or event.run.cluster not in self._clusters.profiles.by_name:
            return ""
        results = tell_event(self._clusters.context(event.run.cluster).cluster, event)
        return "; ".join(f"not told by {one.channel}: {one.detail}" for one in results if not one.ok)

    def why(self, run_id: str) -> WhyReport:
        """Why the run died or stands still."""
        from rltui.service.attempt_differences import unexplained
        from rltui.service.interrupted import unfinished_words
        from rltui.service.why import examine_run
        from rltui.service.why_report import why_report

        row = self._row(run_id)
        context = self._clusters.context(row.reader)
        found = examine_run(context, row)
        different = unexplained(context.cluster.client, row, found)
        return why_report(row, found, different, unfinished_words(context, row))

    def node_report(self, run_id: str, node: str) -> str:
        """What the run's cluster remembers against a node."""
        from rltui.service.bad_nodes import report

        cluster = self._clusters.context(self._row(run_id).reader).cluster
        return report(cluster.client, cluster.run_root, cluster.name, node)

    def close(self) -> None:
        """End all relays."""
        self._clusters.close()

    def _row(self, run_id: str) -> RunSummary:
        """The newest row of a run; one that no list has shown yet is looked for."""
        return self._rows.get(run_id) or self._clusters.find(run_id)[1]

    def _failure(self, run: RunSummary) -> str:
        from rltui.service.failure_cache import failure_of

        return failure_of(self._clusters.context(run.reader), run)

    def _symptom(self, run: RunSummary) -> str:
        from rltui.service.symptoms import symptom_word

        return symptom_word(run, self._clusters.context(run.reader).reader.recent(run), self._last.taken_at)


def _joined(context: Context, picture: RunSnapshot, row: RunSummary) -> RunSummary:
    """The run as its directory tells, with what only the scheduler and the list of runs know."""
    run = structs.replace(picture.summary, cluster=row.cluster, through=row.through, submission=row.submission)
    if run.attempt == row.attempt:
        run = structs.replace(run, failure=row.failure, symptom=row.symptom)
        run = structs.replace(run, no_step_s=row.no_step_s, usual_step_s=row.usual_step_s)
    try:
        [run] = context.jobs.told(RunsSnapshot(runs=(run,), taken_at=picture.taken_at)).runs
    except ClusterError:
        run = structs.replace(run, job=row.job, scheduler_says=row.scheduler_says)
    return run
