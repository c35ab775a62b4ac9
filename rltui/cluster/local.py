"""The local cluster: this machine, through the same relay that a remote one would have."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Protocol

import msgspec

from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient
from rltui.errors import ClusterError, RltuiError
from rltui.onnode import rundir
from rltui.paths import ensure_private, run_root


class AttemptPlace(Protocol):
    """What a cluster needs to know of an attempt in order to start it."""

    @property
    def path(self) -> str:
        """Its directory."""

    @property
    def code(self) -> str:
        """The folder of the code it runs with."""


class SupervisorIdentity(msgspec.Struct, frozen=True):
    """Who runs an attempt (``supervisor.json``)."""

    pid: int
    start_time: str | None = None
    host: str = ""
    uuid: str = ""


class LocalCluster:
    """Starts and ends attempts on this machine.

    Attributes:
        name: ``local``.
        run_root: Directory of the run directories.
        python: The interpreter that runs supervisor and trainers.
        client: The relay.
    """

    name = "local"

    def __init__(self) -> None:
        self.run_root = str(ensure_private(run_root()))
        self.python = os.environ.get("RLTUI_TRAINER_PYTHON") or sys.executable
        self.client = RelayClient(LocalTransport())

    def submit(self, attempt: AttemptPlace) -> str:
        """Start the attempt's supervisor in the background; returns its pid as the job's id.

        Raises:
            RltuiError: It did not start.
        """
        argv = [self.python, "-m", "rltui.onnode.supervise", "--attempt", attempt.path, "--detach"]
        answer = self.client.run(argv, env={"PYTHONPATH": attempt.code}, timeout_s=30)
        if answer.rc:
            raise RltuiError(f"The run could not be started: {answer.err.strip()[-300:]}")
        return str(self.supervisor(attempt.path).pid)

    def cancel(self, attempt_path: str) -> bool:
        """Ask the attempt's supervisor to end it; False where the supervisor is gone already."""
        who = self.supervisor(attempt_path)
        return self.client.signal(who.pid, who.start_time or "", 15)

    def sweep(self, attempt_path: str, uuid: str) -> None:
        """End what an attempt whose supervisor died has left, and write down that it was lost."""
        argv = [self.python, "-m", "rltui.onnode.guard", attempt_path, uuid, ""]
        self.client.run(argv, env={"PYTHONPATH": str(Path(rundir.__file__).parents[2])}, timeout_s=60)

    def supervisor(self, attempt_path: str) -> SupervisorIdentity:
        """Who runs the attempt.

        Raises:
            ClusterError: The attempt has no supervisor yet.
        """
        data = self.client.read(f"{attempt_path}/{rundir.SUPERVISOR}", 0, 4096).data
        try:
            return msgspec.json.decode(data, type=SupervisorIdentity)
        except msgspec.DecodeError as error:
            raise ClusterError(f"{attempt_path} has no supervisor that could be asked.") from error

    def close(self) -> None:
        """End the relay."""
        self.client.close()
