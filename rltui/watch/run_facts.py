"""What the files of a run directory say, put together: pure functions from their contents to a row of the list."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.onnode import rundir
from rltui.watch.endpoint import Endpoint
from rltui.watch.lines import decode
from rltui.watch.snapshots import EndSnapshot, RunSummary, StageSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rltui.watch.snapshots import RunState

ATTEMPT_FILES = (rundir.JOB, rundir.STAGE, rundir.END, rundir.SUPERVISOR)
"""Files of an attempt that tell where it stands; the job's is there from the start, so no attempt is overlooked."""

ENDPOINT_FILES = (rundir.RAY_ENDPOINT, rundir.STATUS_ENDPOINT)

STARTING_STAGES = frozenset({"preflight", "ray-up", "placing", "loading"})

_ATTEMPT_PATH = re.compile(r"attempts/(\d{1,6})/([^/]+)\Z")


class RunRecord(Struct, frozen=True):
    """``run.json``."""

    name: str = ""
    algorithm: str = ""
    cluster: str = ""
    created_at: float = 0.0
    nodes: int = 0
    gpus_per_node: int = 0
    gpu: str = ""


class Supervisor(Struct, frozen=True):
    """``supervisor.json``."""

    pid: int
    start_time: str | None = None
    host: str = ""


class RayFile(Struct, frozen=True):
    """``ray.json``."""

    dashboard: str
    token: str = ""


class AttemptFacts(Struct, frozen=True, kw_only=True):
    """What the files of one attempt say; None is a file that is not there, or holds something else."""

    number: int
    stage: StageSnapshot | None = None
    end: EndSnapshot | None = None
    supervisor: Supervisor | None = None
    dashboard: Endpoint | None = None
    status: Endpoint | None = None


class RunFacts(Struct, frozen=True, kw_only=True):
    """What the files of one run say."""

    run_id: str
    record: RunRecord
    attempts: tuple[AttemptFacts, ...] = ()
    """By number, oldest first."""

    @property
    def newest(self) -> AttemptFacts:
        """The newest attempt; one of number 0 where there is none yet."""
        return self.attempts[-1] if self.attempts else AttemptFacts(number=0)


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
    return RunFacts(run_id=run_id, record=record, attempts=ordered)


def _attempt_facts(number: int, files: Mapping[str, str]) -> AttemptFacts:
    ray = decode(files.get(rundir.RAY_ENDPOINT, ""), RayFile)
    return AttemptFacts(
        number=number,
        stage=decode(files.get(rundir.STAGE, ""), StageSnapshot),
        end=decode(files.get(rundir.END, ""), EndSnapshot),
        supervisor=decode(files.get(rundir.SUPERVISOR, ""), Supervisor),
        dashboard=Endpoint(ray.dashboard, ray.token) if ray is not None else None,
        status=decode(files.get(rundir.STATUS_ENDPOINT, ""), Endpoint),
    )


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
    return RunSummary(
        run_id=facts.run_id,
        name=record.name or facts.run_id,
        algorithm=record.algorithm,
        cluster=record.cluster,
        state=fold_state(newest.stage, newest.end, supervisor_alive),
        attempt=newest.number,
        created_at=record.created_at,
        nodes=record.nodes,
        gpus_per_node=record.gpus_per_node,
        gpu=record.gpu,
        stage=newest.stage or StageSnapshot(),
        end=newest.end,
        path=path,
    )
