"""The cockpit's view of the services: what a screen may ask for, as one small interface.

Every method may block (files, relay, HTTP), so the TUI calls them in worker threads only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from msgspec import Struct

from rltui.cluster.jobs import JobSnapshot
from rltui.service.sweep_points import NO_SWEEP, Sweep

if TYPE_CHECKING:
    from rltui.check.findings import Finding
    from rltui.cluster.prompts import Prompter
    from rltui.diagnose.verdicts import Safety
    from rltui.layout.fields import Field
    from rltui.service.cluster_queue import ClusterQueue
    from rltui.service.config import RunConfig
    from rltui.service.launch_review import LaunchReview, PresetSummary
    from rltui.service.node_shell import NodeShell
    from rltui.service.review import LaunchOutlook
    from rltui.service.run_events import Event
    from rltui.service.wandb_place import WandbPlace
    from rltui.watch.log_search import LogQuery, Searched
    from rltui.watch.samples import Sample, SampleGroup, SampleQuery, SamplesFound
    from rltui.watch.snapshots import LogPart, RunSnapshot, RunsSnapshot


class OpenJob(Struct, frozen=True, kw_only=True):
    """A job of the user's that is no run."""

    cluster: str
    job: JobSnapshot


Action = Literal["cancel", "resubmit", "exclude", "lower_memory", "edit", "fix", "auto", "signal"]
"""All but ``cancel``, ``auto`` and ``signal`` end in a resubmission: as it was, without some nodes, with less memory,
with edits, with what its causes call for."""

ACTION_WORDS: dict[Action, str] = {
    "cancel": "cancel",
    "resubmit": "resubmit",
    "exclude": "exclude nodes and resubmit",
    "lower_memory": "lower the memory peak and resubmit",
    "edit": "resubmit with changes",
    "fix": "fix",
    "auto": "switch hands-off mode of",
    "signal": "send a signal to",
}


class Ask(NamedTuple):
    """An action that is asked about: on which run, with what change, and on which ``others`` the same."""

    action: Action
    run_id: str
    overrides: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    signal: str = ""
    set_aside: str = ""
    """A damaged checkpoint that a resubmission is to rename first."""

    @property
    def runs(self) -> tuple[str, ...]:
        """All runs that it is for."""
        return (self.run_id, *self.others)

    @property
    def words(self) -> str:
        """What is asked, in words."""
        words = f"send SIG{self.signal} to" if self.signal else ACTION_WORDS[self.action]
        return f"{words} {f'{len(self.runs)} runs' if self.others else self.run_id}"

    def each(self) -> tuple[Ask, ...]:
        """The same for each run alone."""
        return tuple(self._replace(run_id=run_id, others=()) for run_id in self.runs)


class ActionPreview(Struct, frozen=True, kw_only=True):
    """What a destructive action would do, shown before it is confirmed; its target is fixed here."""

    run_id: str
    title: str
    """A question, such as ``Cancel grpo-tiny-1a2b?``."""
    consequences: tuple[str, ...]
    """Plain sentences: age, step, newest checkpoint, what will be lost."""
    commands: tuple[str, ...]
    diff: tuple[str, ...] = ()
    """Lines of the layout's change, ``- roles.rollout.memory_utilization: 0.9`` and ``+ …: 0.8``."""
    findings: tuple[Finding, ...] = ()
    """What a check says of the changed layout."""
    overrides: tuple[str, ...] = ()
    """The change as ``key.path=value`` words; handing them to the action does exactly what is shown."""
    exclude: tuple[str, ...] = ()
    """Nodes that the new attempt keeps away from."""
    set_aside: str = ""
    """A damaged checkpoint that is renamed first."""
    switches_on: bool = False
    """Of hands-off mode: whether a yes switches it on; else it ends it."""
    parts: tuple[ActionPreview, ...] = ()
    """Of an action on several runs: what it does to each."""


class ClusterSummary(Struct, frozen=True, kw_only=True):
    """One row of the list of clusters."""

    name: str
    summary: str = ""
    scheduler: str = "local"
    place: str = ""
    """Where it is: ``this machine`` or the SSH host."""
    problem: str = ""
    """Why it is away; empty where it answers or has not been asked yet."""
    needs_attention: bool = False
    """Whether somebody must act before it is asked again: a prompt, an unknown host key, a failed authentication."""
    answered_at: float = 0.0
    """When it last answered, by this machine's clock; 0: never in this session."""


class WhyRemedy(Struct, frozen=True, kw_only=True):
    """One thing to do about a cause."""

    id: str
    summary: str
    overrides: tuple[str, ...] = ()
    """Its change of the layout as ``key.path=value`` words."""
    shown: tuple[str, ...] = ()
    """The same in the words of the system whose run it is, also where they are no overrides."""
    exclude: tuple[str, ...] = ()
    """Nodes that it keeps away from."""
    commands: tuple[str, ...] = ()
    """Commands for a shell; for the user to run."""
    safe: Safety = "never"

    @property
    def can_apply(self) -> bool:
        """Whether the cockpit can do it, by a resubmission that is previewed first."""
        return self.safe != "never" and bool(self.overrides or self.exclude)


class WhyFinding(Struct, frozen=True, kw_only=True):
    """One cause, as the `!` screen shows it."""

    diagnosis: str
    """Its id, such as ``nccl_timeout``."""
    summary: str
    confidence: float
    is_secondary: bool = False
    evidence: tuple[tuple[str, int, str], ...] = ()
    """(file, line number, text), most telling first."""
    remedies: tuple[str, ...] = ()
    """One sentence each, best first."""
    overrides: tuple[str, ...] = ()
    """The best remedy that is a layout change, as ``key.path=value`` words."""
    exclude: tuple[str, ...] = ()
    """Nodes that the best remedy keeps away from."""
    fixes: tuple[WhyRemedy, ...] = ()
    """The remedies in full, best first."""


class WhyReport(Struct, frozen=True, kw_only=True):
    """The answer to `!`."""

    run_id: str
    headline: str
    """The cause in one sentence, or that none is known and what to collect."""
    findings: tuple[WhyFinding, ...] = ()
    """Causes first, then what followed from them."""
    exception: tuple[str, int, str] | None = None
    """Where no cause is known: file, line and text of the first exception, out of its wrappers."""
    notes: tuple[str, ...] = ()
    """What else there is to say then: the exception's frames, and what is different since the last good attempt."""


class Cockpit(Protocol):
    """What screens may ask of the services."""

    def runs(self) -> RunsSnapshot:
        """All runs of all clusters, newest first; never raises for a cluster that is away."""

    def want_gpus(self, *, on: bool) -> None:
        """Whether rows of live runs are to tell how busy their GPUs are, which has to be read; asks nobody itself."""

    def watch(self, run_id: str, log: str = "") -> RunSnapshot:
        """A fresh picture of one run; reads only what is new since the last call.

        Args:
            run_id: The run.
            log: Which of its logs is wanted, by the name in ``LogFile``; empty: its own output; ``*``: all.

        Raises:
            RltuiError: The run is not there.
        """

    def beside(self, run_id: str) -> RunSnapshot:
        """A picture of a run that another is compared with; the one that is watched stays the watched one.

        Raises:
            RltuiError: The run is not there.
        """

    def log_part(self, run_id: str, name: str, line: int, offset: int | None = None) -> LogPart:
        """The piece of a log of the newest attempt around ``line`` (counted from 1), which begins at ``offset``.

        Raises:
            RltuiError: The run or the log is not there.
        """

    def log_piece(self, run_id: str, name: str, place: Mapping[str, int] | None, at: float | None = None) -> LogPart:
        """A piece of a log of the newest attempt, or of all merged (``*``), around a place.

        Args:
            run_id: The run.
            name: The log, as in ``watch``.
            place: By log, bytes before the place; None: the end.
            at: When the line there was written, where ``place`` has only its log.

        Raises:
            RltuiError: The run is not there.
        """

    def search_log(self, run_id: str, name: str, query: LogQuery) -> Iterator[Searched]:
        """Search a whole log of the newest attempt, or all (``*``), piece by piece.

        Raises:
            RltuiError: The run or the log is not there, or the pattern cannot be read.
        """

    def samples(self, run_id: str, query: SampleQuery) -> Iterator[SamplesFound]:
        """Search the samples of the newest attempt, or of the run's evaluations, piece by piece.

        Raises:
            RltuiError: The run is not there, or its samples cannot be ranked or searched so.
        """

    def sample(self, run_id: str, sample: Sample, evaluation: bool = False) -> SampleGroup:
        """A sample in full, with the other answers to its prompt.

        Raises:
            RltuiError: It is not there any more.
        """

    def config(self, run_id: str) -> RunConfig:
        """Every setting of the newest attempt, where each comes from, and what it was in the attempt before.

        Raises:
            RltuiError: The run is not there, or its settings cannot be read.
        """

    def layout_file(self, run_id: str) -> str:
        """Path of a file on this machine with the layout of the run's newest attempt, every key of it.

        Raises:
            RltuiError: The run is not there, or is of another system's script.
        """

    def wandb(self, run_id: str) -> WandbPlace:
        """Where W&B has a run.

        Raises:
            RltuiError: The run is not there, or has left nothing of W&B.
        """

    def presets(self) -> tuple[PresetSummary, ...]:
        """The presets that can be launched, and the scripts of this folder."""

    def clusters(self) -> tuple[ClusterSummary, ...]:
        """The clusters of the user's profiles, ``local`` first; reads files only, never the network."""

    def connect(self, cluster: str, prompter: Prompter) -> str:
        """Connect to a cluster that needs somebody; ``prompter`` is asked whatever the way there asks.

        Returns:
            One sentence on what came of it.

        Raises:
            ClusterError: It was not let in, or nobody answered.
        """

    def review(
        self, preset: str, overrides: tuple[str, ...] = (), cluster: str = "local", sweep: Sweep = NO_SWEEP
    ) -> LaunchReview:
        """Check ``preset``, or the file of that path, with ``overrides``, as each run of ``sweep``.

        Errors in these are findings. Overrides are ``key.path=value``; of a script, what stands behind it in
        ``rltui launch --script``.
        """

    def outlook(self, preset: str, overrides: tuple[str, ...] = (), cluster: str = "local") -> LaunchOutlook:
        """When that launch would start, and what is different from the last run of that name; asks the cluster."""

    def fields(self, preset: str, overrides: tuple[str, ...] = ()) -> tuple[Field, ...]:
        """Every key of ``preset``, or of the layout of that path: what it means, takes and is with ``overrides``.

        Raises:
            LayoutError: It is no layout.
        """

    def launch(
        self,
        preset: str,
        overrides: tuple[str, ...] = (),
        cluster: str = "local",
        sweep: Sweep = NO_SWEEP,
        auto: bool = False,
    ) -> tuple[str, ...]:
        """Launch, in hands-off mode if ``auto``, or all runs of a sweep; returns the ids of the runs.

        Raises:
            RltuiError: A finding stands in the way, or the submission failed.
        """

    def open_jobs(self) -> tuple[OpenJob, ...]:
        """The user's jobs on all Slurm clusters that are no runs; asks each of them once.

        Raises:
            RltuiError: No cluster could be asked.
        """

    def queue(self, cluster: str, *, again: bool = False) -> ClusterQueue:
        """Everybody's jobs on a cluster; asks it no more often than its scheduler may be asked.

        Args:
            cluster: Which.
            again: Somebody does not want to wait for the next look.

        Raises:
            UsageError: There is no such cluster.
        """

    def adopt(self, cluster: str, job_id: str) -> str:
        """Make a run of a job without touching it; returns the run's id.

        Raises:
            RltuiError: It has ended, or is a run already.
        """

    def node_shell(self, run_id: str, node: str = "") -> NodeShell:
        """A shell where a run is, on one of its nodes.

        Raises:
            RltuiError: The run has no such node now.
        """

    def preview(self, ask: Ask) -> ActionPreview:
        """What an action would do to the one run that it is for.

        A resubmission says from which checkpoint it would go on, and ends a live run first. One with less memory has
        the change that lowers the peak which stands in this run's way, found from its placement: where engine and
        trainer do not share a GPU, a lower ``memory_utilization`` cannot help the trainer, so another lever is
        offered, and that said. A fix is one change for everything that is known to be wrong with the run, with a
        sentence a cause; that of hands-off mode tells what it has done so far.
        """

    def carry_out(self, ask: Ask, shown: ActionPreview) -> str:
        """Do exactly what was shown of it; returns one sentence on what was done."""

    def terminal(self, event: Event) -> str:
        """What a terminal is to be sent for this event: ``bell``, ``osc9``, ``osc777`` or ``none``; asks nobody."""

    def tell(self, event: Event) -> str:
        """Tell people as the cluster's profile says, unless somebody has; returns who could not be told, and why.

        Raises:
            RltuiError: The cluster is away.
        """

    def why(self, run_id: str) -> WhyReport:
        """Why the run died or stands still, from its logs, stages, samples and the scheduler's word."""

    def node_report(self, run_id: str, node: str) -> str:
        """What the run's cluster remembers against ``node``, as a text for the site's administrators.

        Raises:
            RltuiError: Nothing is remembered against it, or the cluster is away.
        """
