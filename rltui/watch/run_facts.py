"""What the files of a run directory say, put together: pure functions from their contents to a row of the list."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from msgspec import Struct

from rltui.cluster.jobs import AllocationShare
from rltui.onnode import rundir
from rltui.watch.endpoint import Endpoint
from rltui.watch.lines import decode
from rltui.watch.snapshots import ArchivedNote, EndSnapshot, HeldBack, RunState, RunSummary, StageSnapshot

T = TypeVar("T")

ATTEMPT_FILES = (
    *(rundir.JOB, rundir.STAGE, rundir.END, rundir.SUPERVISOR),
    *(rundir.SUBMITTED, rundir.SLURM, rundir.FAILURE, rundir.ADOPTED),
)
"""Files of an attempt that tell where it stands; the job's is there from the start, so no attempt is overlooked."""

RUN_FILES = (rundir.RUN, rundir.HANDS_OFF, rundir.DECISIONS, rundir.ARCHIVED)
"""Files of a run that hold for all its attempts."""

ENDPOINT_FILES = (rundir.RAY_ENDPOINT, rundir.STATUS_ENDPOINT)

STARTING_STAGES = frozenset({"preflight", "ray-up", "placing", "loading"})

SCRIPT_MODULE = "rltui.onnode.script_run"
"""What starts a script, in the words of ``job.json``."""

_ATTEMPT_PATH = re.compile(r"attempts/(\d{1,6})/([^/]+)\Z")


class Held(Struct, frozen=True):
    """What a run, or an attempt of it, asks for."""

    nodes: int = 0
    gpus_per_node: int = 0
    """On CPUs its slots; the mean, rounded up, where nodes differ."""
    gpu: str = ""
    kinds: tuple[tuple[int, int], ...] = ()
    """Nodes of each kind and the GPUs of each of them, where they differ."""

    @property
    def num_gpus(self) -> int:
        """GPUs (on CPUs, slots) of all nodes."""
        return sum(nodes * gpus for nodes, gpus in self.kinds) or self.nodes * self.gpus_per_node


class RunRecord(Held, frozen=True):
    """``run.json``; what is held is that of its first attempt."""

    name: str = ""
    algorithm: str = ""
    cluster: str = ""
    created_at: float = 0.0
    sweep: str = ""


class Supervisor(Struct, frozen=True):
    """What ``supervisor.json`` says: which process looks after an attempt without a scheduler."""

    pid: int
    start_time: str | None = None
    host: str = ""


class JobNote(Struct, frozen=True):
    """``submitted.json`` or ``slurm.json``: the scheduler's id, and when and where it was so."""

    job_id: str | int = ""
    restart: int | None = None
    at: float | None = None
    """When it was submitted."""
    started_at: float | None = None
    nodes: tuple[str, ...] = ()


class AdoptedJob(Struct, frozen=True):
    """The job in ``adopted.json``, as the scheduler told of it."""

    submitted_at: float = 0.0
    started_at: float = 0.0
    node_count: int = 0


class AdoptedNote(Struct, frozen=True):
    """``adopted.json``, as far as it tells of times."""

    job: AdoptedJob = AdoptedJob()


class Resources(Struct, frozen=True):
    """What ``job.json`` asks for on each node."""

    gpus: int = 0


class JobFile(Struct, frozen=True):
    """``job.json``, as far as it tells what is held."""

    held: Held | None = None
    resources: Resources = Resources()
    requeue_of: int | None = None
    argv: tuple[str, ...] = ()
    allocation: AllocationShare | None = None
    """Of a run in somebody's allocation."""


class HandsOffNote(Struct, frozen=True):
    """``hands-off.json``, as far as it tells whether the run goes on by itself."""

    on: bool = False
    stopped: str = ""


class DecisionNote(Struct, frozen=True):
    """A line of ``hands-off.jsonl``, as far as it tells what waits."""

    time: float = 0.0
    hold_s: float = 0.0
    held: str = ""
    next_attempt: int = 0


class FailureNote(Struct, frozen=True):
    """What ``failure.json`` says: the word for why it failed, as the node itself found it."""

    word: str = ""


class RayFile(Struct, frozen=True):
    """What ``ray.json`` says: where the attempt's Ray answers, and with which token."""

    dashboard: str
    token: str = ""
    host: str = ""
    jobs: tuple[str, ...] | None = None

    @property
    def endpoint(self) -> Endpoint:
        """Ray's dashboard, whose address is good on the head node only."""
        return Endpoint(self.dashboard, self.token, self.host, self.jobs)


class AttemptFacts(Struct, frozen=True, kw_only=True):
    """What the files of one attempt say; None is a file that is not there, or holds something else."""

    number: int
    stage: StageSnapshot | None = None
    end: EndSnapshot | None = None
    supervisor: Supervisor | None = None
    job_id: str = ""
    """The scheduler's id, as rltui or the job itself wrote it down."""
    failure: str | None = None
    """The word for what ended it; empty where no cause was found, None where nobody has looked."""
    restart: int | None = None
    """Which start of that job this is, 0 the first; None where it has not said."""
    is_adopted: bool = False
    """Whether it is a job that rltui did not start."""
    dashboard: Endpoint | None = None
    status: Endpoint | None = None
    submitted_at: float | None = None
    """When it was handed to the scheduler."""
    is_requeued: bool = False
    """Whether Slurm queued it itself, at the end of the start before."""
    started_at: float | None = None
    """When it got its slots."""
    nodes: int = 0
    """0 where its files do not say."""
    hosts: tuple[str, ...] = ()
    """Its nodes by name, as far as its files say."""
    gpus_per_node: int = 0
    """0 on CPUs."""
    held: Held | None = None
    """What it asks for; None where it is the run's, in attempts of earlier releases."""
    share: AllocationShare | None = None
    """What it has of an allocation that it did not ask for itself."""
    is_script: bool = False
    """Whether a script of another system runs in it, whose steps are only known as far as it prints them."""

    @property
    def has_begun(self) -> bool:
        """Whether anything of it has ever run, or it has ended without."""
        return self.stage is not None or self.supervisor is not None or self.end is not None

    @property
    def began_at(self) -> float:
        """When it wrote its first word, epoch seconds; 0 where it has not said."""
        first = self.stage.history[0].get("at") if self.stage is not None and self.stage.history else None
        if isinstance(first, (int, float)):
            return float(first)
        return self.end.at if self.end is not None else 0.0


class RunFacts(Struct, frozen=True, kw_only=True):
    """What the files of one run say."""

    run_id: str
    record: RunRecord
    attempts: tuple[AttemptFacts, ...] = ()
    """By number, oldest first."""
    hands_off: HandsOffNote | None = None
    """Whether it goes on by itself; None: it never did."""
    decision: DecisionNote | None = None
    """The last one of hands-off mode."""
    archived: ArchivedNote | None = None

    @property
    def newest(self) -> AttemptFacts:
        """The attempt that the run is at: the one that began last, or the next one if that has ended.

        Several wait where a chain of jobs was submitted, and a job that is requeued takes a number behind them, so
        neither the last number nor the first one that has not ended will do. One of number 0 stands for none yet.
        """
        begun = [each for each in self.attempts if each.has_begun and not (each.end is not None and each.end.unneeded)]
        waiting = [attempt for attempt in self.attempts if not attempt.has_begun]
        last = max(begun, key=lambda attempt: (attempt.began_at, attempt.number), default=None)
        if waiting and (last is None or last.end is not None):
            return waiting[0]
        return last or AttemptFacts(number=0)

    @property
    def in_order(self) -> list[int]:
        """Numbers of the attempts that have begun, in the order in which they did; the one that the run is at is last.

        Those that wait behind it, the rest of a chain, have nothing to read yet.
        """
        at = self.newest.number
        begun = sorted((one.began_at, one.number) for one in self.attempts if one.has_begun and one.number != at)
        return [number for _, number in begun] + ([at] if at else [])


def run_facts(run_id: str, files: Mapping[str, str]) -> RunFacts | None:
    """Return the facts in ``files`` (text by path below the run's directory), or None without a ``run.json``."""
    if rundir.RUN not in files:
        return None
    attempts: dict[int, dict[str, str]] = {}
    for path, text in files.items():
        if match := _ATTEMPT_PATH.match(path):
            attempts.setdefault(int(match[1]), {})[match[2]] = text
    record = decode(files[rundir.RUN], RunRecord) or RunRecord(name=run_id)
    ordered = tuple(_attempt_facts(number, attempts[number]) for number in sorted(attempts))
    hands_off = decode(files.get(rundir.HANDS_OFF, ""), HandsOffNote)
    decisions = (decode(line, DecisionNote) for line in reversed(files.get(rundir.DECISIONS, "").splitlines()))
    return RunFacts(
        run_id=run_id,
        record=record,
        attempts=ordered,
        hands_off=hands_off,
        decision=next((one for one in decisions if one is not None), None),
        archived=decode(files.get(rundir.ARCHIVED, ""), ArchivedNote),
    )


def _attempt_facts(number: int, files: Mapping[str, str]) -> AttemptFacts:
    def read(name: str, kind: type[T]) -> T | None:
        return decode(files.get(name, ""), kind)

    ray, stage = read(rundir.RAY_ENDPOINT, RayFile), read(rundir.STAGE, StageSnapshot)
    supervisor = read(rundir.SUPERVISOR, Supervisor)
    job, failure = read(rundir.JOB, JobFile) or JobFile(), read(rundir.FAILURE, FailureNote)
    # the scheduler's id is as the job itself wrote it, else as rltui did
    submitted, slurm = read(rundir.SUBMITTED, JobNote) or JobNote(), read(rundir.SLURM, JobNote) or JobNote()
    note = slurm if slurm.job_id else submitted if submitted.job_id else JobNote()
    submitted_at, started_at, nodes = _times(submitted, slurm, stage)
    if rundir.ADOPTED in files:  # rltui's own note is of the adoption
        adopted = (read(rundir.ADOPTED, AdoptedNote) or AdoptedNote()).job
        submitted_at, started_at, nodes = adopted.submitted_at or None, adopted.started_at or None, adopted.node_count
    return AttemptFacts(
        number=number,
        stage=stage,
        end=read(rundir.END, EndSnapshot),
        supervisor=supervisor,
        job_id=str(note.job_id),
        restart=note.restart,
        is_adopted=rundir.ADOPTED in files,
        failure=failure.word if failure is not None else None,
        dashboard=ray.endpoint if ray is not None else None,
        status=read(rundir.STATUS_ENDPOINT, Endpoint),
        submitted_at=submitted_at,
        is_requeued=job.requeue_of is not None,
        started_at=started_at,
        nodes=nodes,
        hosts=slurm.nodes or ((supervisor.host,) if supervisor is not None and supervisor.host else ()),
        gpus_per_node=job.resources.gpus,
        held=job.held,
        is_script=SCRIPT_MODULE in job.argv,
        share=job.allocation,
    )


def _times(submitted: JobNote, slurm: JobNote, stage: StageSnapshot | None) -> tuple[float | None, float | None, int]:
    """When an attempt was submitted and got its slots, and how many nodes it has (0: not said)."""
    started_at = slurm.started_at or (stage.began("preflight") if stage is not None else None)
    # the note of a local submission is written when the attempt may have started already
    known = [at for at in (submitted.at, started_at, stage.began("queued") if stage is not None else None) if at]
    return min(known) if submitted.at else None, started_at, len(slurm.nodes)


def hands_off_word(note: HandsOffNote | None) -> str:
    """``on``, ``off: why``, or nothing for a run that never was in hands-off mode."""
    if note is None:
        return ""
    return "on" if note.on else f"off: {note.stopped}"


def _held_back(facts: RunFacts) -> HeldBack | None:
    """What hands-off mode lets wait, as long as it is on."""
    last = facts.decision
    if last is None or not last.held or facts.hands_off is None or not facts.hands_off.on:
        return None
    return HeldBack(attempt=last.next_attempt, until=last.time + last.hold_s, words=last.held)


def fold_state(stage: StageSnapshot | None, end: EndSnapshot | None, supervisor_alive: bool | None) -> RunState:
    """Fold what is known of an attempt into one word.

    Args:
        stage: Where it says it stands; None where it has not said.
        end: How it says it ended; None where it has not.
        supervisor_alive: Whether its supervisor runs; None where nobody can tell from here.
    """
    if end is not None:
        outcomes: dict[str, RunState] = {
            "finished": "finished",
            "failed": "failed",
            "cancelled": "cancelled",
            "lost": "lost",
            "time-limit": "failed",  # the reason says that it saved, and resubmitting goes on from there
        }
        return outcomes.get(end.outcome, "unknown")
    if supervisor_alive is False:
        return "lost"
    if stage is None:
        return "queued" if supervisor_alive else "unknown"
    if stage.stage in ("submitted", "queued"):
        return "queued"
    if stage.stage in STARTING_STAGES:
        return "starting"
    if stage.stage in ("training", "saving"):
        return "running"
    return "stopping" if stage.stage == "ended" else "unknown"


def summarise(facts: RunFacts, path: str, supervisor_alive: bool | None) -> RunSummary:
    """Return a run's row, without its metrics."""
    newest, record = facts.newest, facts.record
    held = newest.held or record
    return RunSummary(
        run_id=facts.run_id,
        name=record.name or facts.run_id,
        algorithm=record.algorithm,
        cluster=record.cluster,
        state=fold_state(newest.stage, newest.end, supervisor_alive),
        attempt=newest.number,
        created_at=record.created_at,
        nodes=held.nodes,
        gpus_per_node=held.gpus_per_node,
        gpu=held.gpu,
        kinds=held.kinds,
        sweep=record.sweep,
        stage=newest.stage or StageSnapshot(),
        end=newest.end,
        path=path,
        job_id=newest.job_id,
        job_restart=newest.restart,
        is_adopted=newest.is_adopted,
        share=newest.share,
        hands_off=hands_off_word(facts.hands_off),
        held_back=_held_back(facts),
        archived=facts.archived,
        failure=newest.failure or "",
        failure_known=newest.failure is not None,
        last_attempt=facts.attempts[-1].number if facts.attempts else 0,
    )
