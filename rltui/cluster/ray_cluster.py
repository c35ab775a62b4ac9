"""A standing Ray cluster as a place that runs attempts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence

from rltui.cluster.cluster import Attempt
from rltui.cluster.jobs import JobsSnapshot
from rltui.cluster.profile import Profile
from rltui.cluster.ray_jobs import RayJobs
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.remote_paths import RemoteRoot
from rltui.cluster.transport import Transport
from rltui.cluster.trusted_server import trust_ray
from rltui.errors import ClusterError, RltuiError
from rltui.onnode import rundir
from rltui.onnode.standing_job import DASHBOARD_VARIABLE

LOOK_EVERY_S = 5.0


class RayCluster:
    """Submits attempts to Ray's Jobs API and stops them.

    A job's id is the attempt's mark, and Ray takes an id only once: a submission cannot be doubled.

    Args:
        profile: The cluster.
        transport: The way to the host of its dashboard.

    Attributes:
        profile: The cluster.
        name: Its name.
        python: The interpreter on its nodes.
        client: The relay on the host of its dashboard.
    """

    def __init__(self, profile: Profile, transport: Transport) -> None:
        self.profile = profile
        self.name = profile.name
        self.python = profile.python
        self.client = RelayClient(transport)
        trust_ray(self.client, profile)
        self._jobs: RayJobs | None = None
        self._root = RemoteRoot(self.client, profile)
        self._lock = threading.Lock()
        self._last = JobsSnapshot()
        self._look_at = 0.0

    @property
    def ray(self) -> RayJobs:
        """The client of its Jobs API."""
        if self._jobs is None:
            self._jobs = RayJobs(self.client, self.profile.ray_address)
        return self._jobs

    @property
    def run_root(self) -> str:
        """Folder of the runs; see ``Cluster``."""
        return self._root.path

    def submit(self, attempt: Attempt, after_job: str = "", hold_s: float = 0.0) -> str:  # noqa: ARG002 (Slurm's)
        """Hand the attempt to Ray; see ``Cluster``."""
        self._look_at = 0.0
        environment = {"PYTHONPATH": attempt.code, DASHBOARD_VARIABLE: self.profile.ray_address, **self.profile.env}
        if self.profile.env_file:
            environment["RLTUI_ENV_FILE"] = self.profile.env_file
        argv = [self.python, "-m", "rltui.onnode.standing_job", "--attempt", attempt.path]
        return self.ray.submit(
            attempt.uuid, argv, env=environment, metadata={"name": attempt.run_id, "comment": f"rltui:{attempt.uuid}"}
        )

    def find_submission(self, uuid: str, since: float) -> str | None:  # noqa: ARG002 (the mark is the id)
        """The job with this mark; see ``Cluster``."""
        return uuid if self.ray.status(uuid) is not None else None

    def cancel(self, attempt_path: str, job_id: str) -> bool:
        """Stop the attempt's job; see ``Cluster``."""
        text = self.client.read(f"{attempt_path}/{rundir.JOB}", 0, 1 << 20).data
        self._look_at = 0.0
        return json.loads(text).get("uuid") == job_id and self.ray.stop(job_id)

    def signal(self, attempt_path: str, job_id: str, name: str) -> bool:  # noqa: ARG002 (the protocol's)
        """Ray can only stop a job; see ``Cluster``."""
        run_id = rundir.run_id_of(attempt_path)
        raise RltuiError(
            f"Ray has no way to send SIG{name} to a job.", f"`rltui cancel {run_id}` lets it save and end."
        )

    def jobs(self, job_ids: Sequence[str]) -> JobsSnapshot:
        """What Ray says of these jobs; see ``Cluster``."""
        with self._lock:
            if time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + LOOK_EVERY_S
                self._last = self._asked()
        found = {one: self._last.jobs[one] for one in job_ids if one in self._last.jobs}
        return JobsSnapshot(jobs=found, taken_at=self._last.taken_at, problem=self._last.problem)

    def close(self) -> None:
        """End the relay."""
        self.client.close()

    def _asked(self) -> JobsSnapshot:
        try:
            return JobsSnapshot(jobs=self.ray.list(), taken_at=time.time())
        except ClusterError as error:
            return JobsSnapshot(jobs=self._last.jobs, taken_at=self._last.taken_at, problem=error.message)
