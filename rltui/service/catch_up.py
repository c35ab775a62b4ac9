"""Reading what adopted jobs have said since somebody last looked: nothing of rltui runs beside them."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rltui.errors import ClusterError
from rltui.onnode import rundir
from rltui.service.run_jobs import MAY_COME_BACK_S

if TYPE_CHECKING:
    from rltui.cluster.cluster import Cluster
    from rltui.watch.runs import RunsReader
    from rltui.watch.snapshots import RunsSnapshot, RunSummary

EVERY_S = 4.0
"""How often the new lines of all adopted jobs are read while a screen is open, by one process for all."""
TIMEOUT_S = 30.0


class CatchUp:
    """Reads on, before a list of runs is made."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._read_at: float | None = None
        self._attempts: tuple[str, ...] = ()
        self._code = ""

    def caught_up(self, reader: RunsReader) -> RunsSnapshot:
        """The runs, with what adopted jobs have said until now."""
        if self._attempts and self._is_due():
            self._read()
        snapshot = reader.read()
        before, adopted = self._attempts, [run for run in snapshot.runs if _goes_on(run, snapshot.taken_at)]
        self._attempts = tuple(rundir.attempt_folder(run.path, run.attempt) for run in adopted)
        self._code = code_of(self._cluster, adopted[0]) if adopted else ""
        is_gone = any(run.state == "lost" and run.end is None for run in adopted)
        if snapshot.problem or not (is_gone or set(self._attempts) - set(before)):
            return snapshot
        self._read()
        return reader.read()

    def _is_due(self) -> bool:
        return self._read_at is None or time.monotonic() - self._read_at >= EVERY_S

    def _read(self) -> None:
        argv = [self._cluster.python, "-m", "rltui.onnode.script_catch_up", *self._attempts]
        with suppress(ClusterError):  # the reader says that the cluster is away
            self._cluster.client.run(argv, env={"PYTHONPATH": self._code}, timeout_s=TIMEOUT_S)
        self._read_at = time.monotonic()


def code_of(cluster: Cluster, run: RunSummary) -> str:
    """Where rltui's code is on ``cluster``: this one's, or the one that ``run`` was adopted with."""
    return str(Path(rundir.__file__).parents[2]) if cluster.profile.scheduler == "local" else f"{run.path}/code"


def _goes_on(run: RunSummary, now: float) -> bool:
    """Whether it is an adopted job that may have said something since: also between the last look and its end."""
    return run.is_adopted and (run.end is None or now - run.end.at < MAY_COME_BACK_S)
