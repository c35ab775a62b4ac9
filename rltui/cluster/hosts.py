"""A machine with no scheduler as a place that runs attempts: a supervisor each, which queue there by themselves."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from rltui.cluster.cluster import Attempt, SubmitRefusedError, SubmitUnknownError
from rltui.cluster.host_facts import best_host, host_states
from rltui.cluster.jobs import JobsSnapshot
from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.machines import Machines
from rltui.cluster.plain_text import plain
from rltui.cluster.profile import LOCAL, Profile, job_variables
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import OUTCOME_UNKNOWN, RelayError
from rltui.cluster.remote_paths import RemoteRoot
from rltui.errors import ClusterError
from rltui.onnode import processes, rundir
from rltui.paths import ensure_private, run_root

SEVERAL_VARIABLE = "RLTUI_MACHINES"
"""Tells a supervisor that those who look may look from another machine."""

SLACK_S = 300.0
START_S = 120.0
"""How long set-up lines and the start of a supervisor may take together."""


class SupervisorIdentity(msgspec.Struct, frozen=True):
    """Who runs an attempt (``supervisor.json``)."""

    pid: int
    start_time: str | None = None
    host: str = ""
    uuid: str = ""
    signals: tuple[str, ...] = ()
    """Signals that it passes on; an older rltui's would end by them."""


class HostsCluster:
    """Starts and ends attempts on a machine, which its supervisors share with those of all its users.

    Args:
        profile: The machine, or several: an attempt then runs on one of them.
        client: The relay to it, or to the first of several that see the same runs.

    Attributes:
        profile: The machine.
        name: Its profile's name.
        python: The interpreter that runs supervisor and trainers.
        client: The relay there.
    """

    def __init__(self, profile: Profile, client: RelayClient) -> None:
        self.profile = profile
        self.name = profile.name
        self.python = profile.python
        self.client = client
        self._root = RemoteRoot(self.client, profile)

    @property
    def run_root(self) -> str:
        """Folder of the runs; see ``Cluster``."""
        return self._root.path

    def submit(self, attempt: Attempt, after_job: str = "", hold_s: float = 0.0) -> str:  # noqa: ARG002 (Slurm's)
        """Start the attempt's supervisor in the background; returns its pid as the job's id.

        Raises:
            SubmitRefusedError: It did not start.
            SubmitUnknownError: The relay was lost before it said.
        """
        if after_job:
            raise SubmitRefusedError(
                f"{self.name} has no job chains.", "Without a scheduler there is no time limit: launch once."
            )
        supervise = [self.python, "-m", "rltui.onnode.supervise", "--attempt", attempt.path, "--detach"]
        argv = self._set_up(supervise, "set -eo pipefail")
        relay = self._chosen(attempt)
        try:
            answer = relay.run(argv, env=self.environment(attempt.code), timeout_s=START_S)
        except RelayError as error:
            if error.kind in OUTCOME_UNKNOWN:
                raise SubmitUnknownError(f"It is unknown whether the run started: {error.message}") from error
            raise SubmitRefusedError(f"The run could not be started: {error.message}", error.hint) from error
        if answer.rc:
            raise SubmitRefusedError(f"The run could not be started: {plain(answer.err.strip()[-300:])}")
        try:
            return str(self.supervisor(attempt.path).pid)
        except ClusterError as error:  # another machine's file may be seen a little later
            raise SubmitUnknownError(f"The run has started, and its pid is not known yet: {error.message}") from error

    def environment(self, code: str = "") -> dict[str, str]:
        """Variables of what is started there, with ``code`` on its path."""
        several = {SEVERAL_VARIABLE: ",".join(self.profile.hosts)} if len(self.profile.hosts) > 1 else {}
        return {**job_variables(self.profile), **several, **({"PYTHONPATH": code} if code else {})}

    def _chosen(self, attempt: Attempt) -> RelayClient:
        """The relay to the machine on which the attempt starts first.

        Raises:
            SubmitRefusedError: None can be reached that has so many cards.
        """
        if not isinstance(self.client, Machines):
            return self.client
        job = json.loads(self.client.read(f"{attempt.path}/{rundir.JOB}", 0, 1 << 20).data)
        gpus = job["resources"]["gpus"]
        try:
            found = best_host(host_states(self.client, self.profile), gpus)
        except ClusterError as error:
            raise SubmitRefusedError(f"The run could not be started: {error.message}", error.hint) from error
        if not found:
            raise SubmitRefusedError(
                f"No machine of {self.name} that can be reached has {gpus} GPUs.",
                f"`rltui queue {self.name}` shows them.",
            )
        return self.client.by_name[found]

    def _relay_of(self, who: SupervisorIdentity) -> RelayClient:
        return self.client.of_host(who.host) if isinstance(self.client, Machines) else self.client

    def _set_up(self, argv: list[str], options: str = "") -> list[str]:
        """``argv`` after the profile's lines, which want a login shell: only that has the command for modules.

        Args:
            argv: The command.
            options: Of the shell: whether a line that fails ends it.
        """
        if not self.profile.setup_lines:
            return argv
        lines = "".join(f"{line}\n" for line in self.profile.setup_lines)
        # `set --`: a file that a line sources takes the shell's own words for its arguments, and may act on them
        return ["bash", "-l", "-c", f'argv=("$0" "$@"); set --\n{options}\n{lines}exec "${{argv[@]}}"\n', *argv]

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
        return self._relay_of(who).signal(who.pid, who.start_time or "", 15)

    def signal(self, attempt_path: str, job_id: str, name: str) -> bool:
        """Send a signal to the attempt's supervisor; see ``Cluster``."""
        who = self.supervisor(attempt_path)
        if job_id and job_id != str(who.pid):
            return False
        return self._relay_of(who).signal(who.pid, who.start_time or "", signal.Signals[f"SIG{name}"])

    def _end_adopted(self, path: str, record: dict[str, Any], who: SupervisorIdentity) -> bool:
        """Tell an adopted process and all that it started: a shell hands no signal on to what it waits for."""
        self.client.put(path, json.dumps({**record, "cancelled_at": time.time()}).encode())
        told = [self.client.signal(one.pid, one.start_time, 15) for one in _tree(who)]
        return any(told)

    def jobs(self, job_ids: Sequence[str]) -> JobsSnapshot:  # noqa: ARG002 (the protocol's)
        """Nothing: supervisors are looked at directly, and there is no scheduler beside them."""
        return JobsSnapshot(taken_at=time.time())

    def sweep(self, attempt_path: str) -> None:
        """End what an attempt whose supervisor died has left, and write down that it was lost."""
        job = json.loads(self.client.read(f"{attempt_path}/{rundir.JOB}", 0, 1 << 20).data)
        argv = [self.python, "-m", "rltui.onnode.guard", attempt_path, job["uuid"], ""]
        relay = self._relay_of(self.supervisor(attempt_path))
        relay.run(self._set_up(argv), env=self.environment(job["code"]), timeout_s=START_S)

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
        """End the relay; supervisors on the machines go on."""
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


def trainer_python() -> str:
    """The interpreter of supervisor and trainers on this machine: ``$RLTUI_TRAINER_PYTHON``, or rltui's own."""
    return os.environ.get("RLTUI_TRAINER_PYTHON") or sys.executable


class LocalCluster(HostsCluster):
    """This machine, with nothing that a profile would have to say of it.

    Args:
        profile: What the user says of it all the same: whom to tell, and where the secrets are.
    """

    def __init__(self, profile: Profile | None = None) -> None:
        told = {"notify": profile.notify, "env_file": profile.env_file} if profile else {}
        here = {"summary": "this machine", "transport": "local", "scheduler": "local", "python": trainer_python()}
        super().__init__(Profile(name=LOCAL, **here, **told), RelayClient(LocalTransport()))  # type: ignore[arg-type]
        self._folder = str(ensure_private(run_root()))

    @property
    def run_root(self) -> str:
        """Folder of the runs; see ``Cluster``."""
        return self._folder
