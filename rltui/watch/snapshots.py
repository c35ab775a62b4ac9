"""Immutable pictures of one source at one time: what screens and headless verbs show, and nothing else.

Every snapshot has an empty constant instead of None, and times are seconds since the epoch by the clock of the
machine that wrote the data, so that ages are never computed across two clocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from rltui.cluster.jobs import AllocationShare, JobSnapshot
from rltui.watch.node_samples import HostSnapshot, RoleMemory
from rltui.watch.owners import OUR_PATTERNS, ActorSnapshot, Patterns, patterns_of

RunState = Literal["queued", "starting", "running", "stopping", "finished", "failed", "cancelled", "lost", "unknown"]
"""The word for a run: its newest attempt's stage and outcome folded into one."""

LIVE_STATES: frozenset[str] = frozenset({"queued", "starting", "running", "stopping"})


class StageSnapshot(Struct, frozen=True, kw_only=True):
    """Where an attempt stands (``stage.json``)."""

    stage: str = "submitted"
    since: float = 0.0
    updated: float = 0.0
    detail: str = ""
    step: int | None = None
    steps: int | None = None
    progress: float | None = None
    roles: dict[str, str] = {}
    history: tuple[dict[str, Any], ...] = ()

    def began(self, stage: str) -> float | None:
        """When the attempt first came to ``stage``; None where it has not, or nobody wrote it down."""
        found = (entry.get("at") for entry in self.history if entry.get("stage") == stage)
        return next((float(at) for at in found if isinstance(at, (int, float))), None)


class EndSnapshot(Struct, frozen=True, kw_only=True):
    """How an attempt ended (``end.json``); ``slurm`` is Slurm's word where it ended the job, such as ``PREEMPTION``."""

    outcome: str
    exit_code: int | None = None
    reason: str = ""
    at: float = 0.0
    slurm: str = ""
    hung: str = ""
    """How it stood still, where hands-off mode ended it for that."""
    unneeded: bool = False
    """It waited behind another, which was the last: it never began, and the run is where the other one ended."""
    over: bool = False
    """Slurm ended it, and has said since that the job does not start again."""


class ArchivedNote(Struct, frozen=True, kw_only=True):
    """``archived.json``: where all but the smallest files of a run are."""

    file: str
    bytes: int = 0
    at: float = 0.0
    checkpoints: str = "all"
    """Which of them are in the file: ``all``, ``newest`` or ``none``."""


class HeldBack(Struct, frozen=True, kw_only=True):
    """An attempt that hands-off mode lets wait."""

    attempt: int
    until: float
    """Epoch seconds by the node's clock."""
    words: str
    """Until when and why: ``until 07:00: quiet hours 22:00-07:00``."""

    def in_words(self, attempt: int, now: float) -> str:
        """That it waits, where it is the one after ``attempt`` and it still does at ``now``; else empty."""
        return f"attempt {self.attempt} waits {self.words}" if self.attempt == attempt + 1 and now < self.until else ""


class RunIdentity(NamedTuple):
    """Which run: an id is drawn anew on each cluster, and two runs may have the same. As a word, ``id@cluster``."""

    cluster: str
    run_id: str

    def __str__(self) -> str:
        """The word that names this run and no other."""
        return f"{self.run_id}@{self.cluster}"

    def is_called(self, word: str) -> bool:
        """Whether ``word`` is its id, with its cluster or alone."""
        start, _, cluster = word.partition("@")
        return cluster in ("", self.cluster) and self.run_id == start

    def may_be_called(self, word: str) -> bool:
        """Whether ``word`` is the beginning of its id, with its cluster or alone."""
        start, _, cluster = word.partition("@")
        return bool(start) and cluster in ("", self.cluster) and self.run_id.startswith(start)


def names_of(runs: Iterable[RunIdentity]) -> dict[RunIdentity, str]:
    """What each of ``runs`` is called among them: its id, with its cluster where another has the same."""
    known = dict.fromkeys(runs)
    times = Counter(run.run_id for run in known)
    return {run: run.run_id if times[run.run_id] == 1 else str(run) for run in known}


class RunSummary(Struct, frozen=True, kw_only=True):
    """One row of the list of runs."""

    run_id: str
    name: str
    algorithm: str
    cluster: str
    """The profile that it was launched with: only that one may change it."""
    state: RunState
    attempt: int
    created_at: float
    nodes: int
    gpus_per_node: int
    gpu: str
    kinds: tuple[tuple[int, int], ...] = ()
    """Nodes of each kind and the GPUs of each of them, where they differ; ``gpus_per_node`` is the mean then."""
    stage: StageSnapshot = StageSnapshot()
    end: EndSnapshot | None = None
    reward: float | None = None
    tokens_per_second: float | None = None
    tokens_per_second_history: tuple[float, ...] = ()
    no_step_s: float = 0.0
    """Seconds without a new step, where that is long for this run: a minute at least; 0: all is as usual."""
    gpu_percent: float | None = None
    """Mean load of its GPUs now, 0 to 100; None: nobody has looked, or nothing tells."""
    usual_step_s: float = 0.0
    """What a step takes, where ``no_step_s`` says that one is missing."""
    path: str = ""
    sweep: str = ""
    """What all runs of its sweep have in common; empty where it is of none."""
    job: JobSnapshot | None = None
    """What the scheduler says of the newest attempt's job: pending reason, position, expected start, nodes."""
    failure: str = ""
    """The diagnosis of a run that failed, one word such as ``nccl_timeout``; empty: none, or not looked at yet."""
    failure_known: bool = False
    """Whether somebody has looked for that word, so that an empty one means that no cause is known."""
    symptom: str = ""
    """What a live run suffers from: a card's fault, or a word such as ``reward-bound``; empty: nothing is known."""
    job_id: str = ""
    """The scheduler's id of that attempt, from its directory; empty where it has none or nobody knows it."""
    job_restart: int | None = None
    """Which start of that job (0 is the first) the attempt's files are of; None where they do not say."""
    scheduler_says: str = ""
    """Why the job waits or how it ended, in a sentence; empty where there is nothing to say."""
    is_adopted: bool = False
    """Whether it is a job that rltui did not start: nothing of rltui runs in it, so it leaves no word of its end."""
    share: AllocationShare | None = None
    """What it has of an allocation that it did not ask for itself; None: its job is its own."""
    hands_off: str = ""
    """``on`` where the run goes on by itself, ``off: why`` where that has ended; empty: it never did."""
    held_back: HeldBack | None = None
    """What hands-off mode lets wait, or did; None: nothing."""
    last_attempt: int = 0
    """Number of the last attempt that was made: later than ``attempt`` where a chain of jobs waits."""
    submission: str = ""
    """What is not known of the attempt's submission, and what happens next; empty where all is known."""
    unfinished: str = ""
    """A change that was to end this attempt, and is under way or was interrupted; empty: none."""
    as_of: float = 0.0
    """When this row was so, where its cluster is away now; 0: now."""

    job_as_of: float = 0.0
    """When the scheduler said what is in ``job``, where it does not answer now; 0: now."""
    through: str = ""
    """Another profile that sees its files (the same disk) and through which it was read; empty: its own cluster."""
    archived: ArchivedNote | None = None
    """Where most of it was put; None: it is in its place."""
    owner: str = ""
    """The colleague whose run it is: it is only read; empty: the user's own."""

    @property
    def identity(self) -> RunIdentity:
        """Which run it is; one of another machine's ``local`` is of the cluster through which it is seen."""
        is_of_elsewhere = self.cluster == "local" and self.through
        return RunIdentity(self.through if is_of_elsewhere else self.cluster, self.run_id)

    @property
    def num_gpus(self) -> int:
        """GPUs (or CPU slots) of all its nodes."""
        return sum(nodes * gpus for nodes, gpus in self.kinds) or self.nodes * self.gpus_per_node

    @property
    def is_live(self) -> bool:
        """Whether processes of the run may still be there."""
        return self.state in LIVE_STATES

    @property
    def reader(self) -> str:
        """Name of the profile whose connection reaches its files."""
        return self.through or self.cluster


class RunsSnapshot(Struct, frozen=True, kw_only=True):
    """All runs of all clusters at one moment, newest first."""

    runs: tuple[RunSummary, ...] = ()
    taken_at: float = 0.0
    problem: str = ""
    """Why this is an old picture, or names each cluster that is away; empty where all is well."""
    scheduler_problem: str = ""
    """Why the schedulers' words in the rows are old, with their age; what the files say is of now all the same."""
    unread: tuple[str, ...] = ()
    """Clusters that are still being read: what runs they have is as last seen, or not known at all."""


class QueueSnapshot(Struct, frozen=True, kw_only=True):
    """One queue of the trainer."""

    name: str
    current: int
    maxsize: int


class StatusSnapshot(Struct, frozen=True, kw_only=True):
    """What the run's status endpoint says: queues, rates, versions."""

    taken_at: float = 0.0
    queues: tuple[QueueSnapshot, ...] = ()
    phase: str = ""
    phase_since: float = 0.0
    learner_weight_version: int | None = None
    engine_weight_versions: dict[str, int] = {}
    decode_tokens_per_second: float | None = None
    prefill_tokens_per_second: float | None = None
    noted_at: float = 0.0
    """When this was noted on the run's head node; 0: it was asked for just now."""
    problem: str = ""


class MetricsSnapshot(Struct, frozen=True, kw_only=True):
    """Series of the run by canonical metric name, thinned to at most ``MAX_POINTS`` points each."""

    steps: tuple[int, ...] = ()
    series: dict[str, tuple[float, ...]] = {}
    """Each series is as long as ``steps``; a missing value is NaN."""
    times: tuple[float, ...] = ()
    """When each step ended, epoch seconds, NaN where its line does not say; empty: no line says."""
    latest: dict[str, float] = {}
    taken_at: float = 0.0


class LogFile(Struct, frozen=True, kw_only=True):
    """One log of an attempt."""

    name: str
    """Its path below the attempt, such as ``out.log`` or ``ray-logs/worker-1.out``."""
    size: int = 0
    node: str = ""
    """The node whose log it is, where its name tells."""


ALL_LOGS = "*"
"""Name of all logs of an attempt, merged as their lines come."""


class LogSnapshot(Struct, frozen=True, kw_only=True):
    """The tail of a log: plain text lines, free of control characters."""

    lines: tuple[str, ...] = ()
    offset: int = 0
    """Byte offset just behind the last line."""
    name: str = ""
    """As in ``LogFile``; empty: the attempt's own output; ``ALL_LOGS``: all, each line led by its log."""


class LogPart(Struct, frozen=True, kw_only=True):
    """A piece of a log around one line: plain text lines, free of control characters."""

    name: str
    """As in ``LogSnapshot``."""
    line: int = 0
    """The line that was asked for, counted from 1; 0: a place was asked for, and no line has a number."""
    first_line: int = 1
    """Number of the first of ``lines``."""
    lines: tuple[str, ...] = ()
    places: tuple[tuple[str, int], ...] = ()
    """Of each line its log and where it begins, where a place was asked for."""
    here: int = 0
    """The first line behind that place, counted from 0."""
    top: dict[str, int] = {}
    bottom: dict[str, int] = {}
    """By log, bytes before the first and behind the last of ``lines``; empty: unknown."""


class AttemptHistory(Struct, frozen=True, kw_only=True):
    """Where the time of one attempt went. Seconds are of the wall clock; None is what its files do not tell.

    ``held_s`` is the sum of ``start_up_s``, ``kept_s``, ``overtaken_s``, ``between_s`` and ``tail_s``.
    """

    number: int
    outcome: str = ""
    """How it ended; empty while it lives, or where nobody knows."""
    cause: str = ""
    """Why it ended short of its last step, in a word; empty where it did not."""
    reason: str = ""
    """The same in its own words."""
    exit_code: int | None = None
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    queue_s: float | None = None
    """From its submission to the moment at which it got its slots."""
    slots: int | None = None
    """GPUs that it held, or CPU slots."""
    first_step: int | None = None
    last_step: int | None = None
    steps: int = 0
    overtaken_steps: int = 0
    """Those that a later attempt did again, from an older checkpoint."""
    held_s: float | None = None
    """From its start to its end, or until now."""
    start_up_s: float | None = None
    """Until its first step began; of one without a step, all."""
    kept_s: float | None = None
    """In steps that still count."""
    overtaken_s: float | None = None
    between_s: float | None = None
    """Between its steps: saving, evaluating, waiting."""
    tail_s: float | None = None
    """After its last step: one that was never finished, a hang, saving, cleaning up."""


class RunHistory(Struct, frozen=True, kw_only=True):
    """Where the time of a run went, over all attempts. Hours are slots × wall clock, of attempts whose times are known.

    ``held_h`` is the sum of ``kept_h``, ``overhead_h``, ``under_way_h`` and all of ``lost_h``.
    """

    unit: str = "GPU"
    """What the hours are of: ``GPU``, or ``CPU slot``."""
    attempts: tuple[AttemptHistory, ...] = ()
    """By their starts."""
    unknown: tuple[int, ...] = ()
    """Numbers of attempts that have begun and whose times nobody knows: they are in no sum."""
    queue_s: float | None = None
    held_h: float | None = None
    kept_h: float | None = None
    overhead_h: float | None = None
    """The first start-up, and what comes between and after steps where nothing was lost."""
    under_way_h: float | None = None
    """Since the last step of an attempt that lives."""
    lost_h: dict[str, float] = {}
    """By cause: steps that were done again, what came after the last step, and the start-up that followed."""
    goodput: float | None = None
    """Share of what was held in steps that count, without what is under way."""


class RunSnapshot(Struct, frozen=True, kw_only=True):
    """Everything that the screen of one run shows."""

    summary: RunSummary
    hosts: tuple[HostSnapshot, ...] = ()
    role_memory: tuple[RoleMemory, ...] = ()
    """What was estimated for a card of each role; none of CPU slots, scripts, and models that are not known."""
    stragglers: frozenset[tuple[str, int]] = frozenset()
    """Node and index of the cards that their peers of the same role wait for."""
    actors: tuple[ActorSnapshot, ...] = ()
    actors_problem: str = ""
    actors_noted_at: float = 0.0
    """When the actors were noted on the run's head node; 0: Ray was asked just now."""
    status: StatusSnapshot = StatusSnapshot()
    metrics: MetricsSnapshot = MetricsSnapshot()
    log: LogSnapshot = LogSnapshot()
    logs: tuple[LogFile, ...] = ()
    """The logs there are, the attempt's own output first."""
    events: tuple[dict[str, Any], ...] = ()
    history: RunHistory = RunHistory()
    taken_at: float = 0.0
    problem: str = ""
    """What could not be read, or why this is an old picture; empty where all is well."""

    @property
    def is_awaited(self) -> bool:
        """Whether only the row is known, and the files are being read: a run that makes steps has more than that."""
        return self.summary.stage.step is not None and not (self.logs or self.events or self.metrics.steps)

    @property
    def role_patterns(self) -> Patterns:
        """What the run's system calls its roles; nobody's words are read where there is no process to know by them."""
        return patterns_of(self.summary.algorithm) if self.actors or self.hosts else OUR_PATTERNS
