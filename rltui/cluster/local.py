"""The local cluster: this machine, through the same relay that a remote one would have."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rltui.cluster.cluster import SubmitRefusedError, SubmitUnknownError
from rltui.cluster.jobs import JobsSnapshot
from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.profile import LOCAL, Profile
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import OUTCOME_UNKNOWN, RelayError
from rltui.errors import ClusterError
from rltui.onnode import processes, rundir
from rltui.onnode.environment import ENV_FILE_VARIABLE
from rltui.paths import ensure_private, run_root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.cluster.cluster import AttemptPlace

SLACK_S = 300.0


class SupervisorIdentity(msgspec.Struct, frozen=True):
    """Who runs an attempt (``supervisor.json``)."""

    pid: int
    start_time: str | None = None
    host: str = ""
    uuid: str = ""
    signals: tuple[str, ...] = ()
    """Signals that it passes on; an older rltui's would end by them."""


def trainer_python() -> str:
    """The interpreter of supervisor and trainers on this machine: ``$RLTUI_TRAINER_PYTHON``, or rltui's own."""
    return os.environ.get("RLTUI_TRAINER_PYTHON") or sys.executable


class LocalCluster:
    """Starts and ends attempts on this machine.

    Args:
        profile: What the user says of it: whom to tell, and where the secrets are.

    Attributes:
        profile: The embedded one, with these two keys.
        name: ``local``.
        run_root: Directory of the run directories.
        python: The interpreter that runs supervisor and trainers.
        client: The relay.
    """

    def __init__(self, profile: Profile | None = None) -> None:
        told = {"notify": profile.notify, "env_file": profile.env_file} if profile else {}
        self.profile = Profile(name=LOCAL, summary="this machine", transport="local", scheduler="local", **told)  # type: ignore[arg-type]
        self.name = LOCAL
        self.run_root = str(ensure_private(run_root()))
        self.python = trainer_python()
        self.client = RelayClient(LocalTransport())

    def submit(self, attempt: AttemptPlace, after_job: str = "") -> str:
        """Start the attempt's supervisor in the background; returns its pid as the job's id.

        Raises:
            SubmitRefusedError: It did not start.
            SubmitUnknownError: The relay was lost before it said.
        """
        if after_job:
            raise SubmitRefusedError("This machine has no job chains.", "It has no time limit either: launch once.")
        argv = [self.python, "-m", "rltui.onnode.supervise", "--attempt", attempt.path, "--detach"]
        try:
            answer = self.client.run(argv, env=self._environment(attempt.code), timeout_s=30)
            if answer.rc == 0:
                return str(self.supervisor(attempt.path).pid)
        except RelayError as error:
            if error.kind in OUTCOME_UNKNOWN:
                raise SubmitUnknownError(f"It is unknown whether the run started: {error.message}") from error
            raise SubmitRefusedError(f"The run could not be started: {error.message}", error.hint) from error
        raise SubmitRefusedError(f"The run could not be started: {answer.err.strip()[-300:]}")

    def _environment(self, code: str) -> dict[str, str]:
        """Variables of what is started here."""
        private = {ENV_FILE_VARIABLE: self.profile.env_file} if self.profile.env_file else {}
        return {"PYTHONPATH": code, **private}

    def find_submission(self, uuid: str, since: float) -> str | None:
        """The pid of the supervisor with this mark, running or not; see ``Cluster``."""
        pattern = f"*/{rundir.ATTEMPTS}/*/{rundir.SUPERVISOR}"
        for file in self.client.collect(self.run_root, [pattern], 4096):
            who = _identity((file.text or "").encode())
            if file.mtime >= since - SLACK_S and who is not None and who.uuid == uuid:
                return str(who.pid)
        return None

    def cancel(self, attempt_path: str, job_id: str) -> bool:
        """Ask the attempt's supervisor to end it; False where the supervisor is gone already."""
        who = self.supervisor(attempt_path)
        if job_id and job_id != str(who.pid):
            return False
        adopted = self.client.collect(attempt_path, [rundir.ADOPTED])
        if adopted:
            return self._end_adopted(f"{attempt_path}/{rundir.ADOPTED}", json.loads(adopted[0].text or "{}"), who)
        return self.client.signal(who.pid, who.start_time or "", 15)

    def signal(self, attempt_path: str, job_id: str, name: str) -> bool:
        """Send a signal to the attempt's supervisor; see ``Cluster``."""
        who = self.supervisor(attempt_path)
        if job_id and job_id != str(who.pid):
            return False
        return self.client.signal(who.pid, who.start_time or "", signal.Signals[f"SIG{name}"])

    def _end_adopted(self, path: str, record: dict[str, Any], who: SupervisorIdentity) -> bool:
        """Tell an adopted process and all that it started: a shell hands no signal on to what it waits for."""
        self.client.put(path, json.dumps({**record, "cancelled_at": time.time()}).encode())
        told = [self.client.signal(one.pid, one.start_time, 15) for one in _tree(who)]
        return any(told)

    def jobs(self, job_ids: Sequence[str]) -> JobsSnapshot:  # noqa: ARG002 (the protocol's)
        """Nothing: supervisors are looked at directly, and there is no scheduler beside them."""
        return JobsSnapshot(taken_at=time.time())

    def sweep(self, attempt_path: str, uuid: str) -> None:
        """End what an attempt whose supervisor died has left, and write down that it was lost."""
        argv = [self.python, "-m", "rltui.onnode.guard", attempt_path, uuid, ""]
        self.client.run(argv, env=self._environment(str(Path(rundir.__file__).parents[2])), timeout_s=60)

    def supervisor(self, attempt_path: str) -> SupervisorIdentity:
        """Who runs the attempt.

        Raises:
            ClusterError: The attempt has no supervisor yet.
        """
        who = _identity(self.client.read(f"{attempt_path}/{rundir.SUPERVISOR}", 0, 4096).data)
        if who is None:
            raise ClusterError(f"{attempt_path} has no supervisor that could be asked.")
        return who

    def close(self) -> None:
        """End the relay."""
        self.client.close()


def _tree(who: SupervisorIdentity) -> list[processes.Process]:
    """The adopted process and what it started; none where its pid is another's by now."""
    found = processes.tree(who.pid)
    return found if found and found[0].start_time == who.start_time else []


def _identity(data: bytes) -> SupervisorIdentity | None:
    try:
        return msgspec.json.decode(data, type=SupervisorIdentity)
    except msgspec.DecodeError:
        return None
