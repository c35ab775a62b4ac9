"""A Slurm cluster as a place that runs attempts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from rltui.cluster.jobs import JobSnapshot
from rltui.cluster.profile import outer_python
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.remote_paths import RemoteRoot
from rltui.cluster.slurm.client import SlurmClient
from rltui.cluster.slurm.marks import comment_of, job_name_of
from rltui.cluster.slurm.poller import JobPoller
from rltui.layout.settings import Slurm
from rltui.onnode import rundir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.cluster.cluster import AttemptPlace
    from rltui.cluster.jobs import JobsSnapshot
    from rltui.cluster.profile import Profile
    from rltui.cluster.transport import Transport

SKEW_S = 900.0
"""How far this machine's clock may be from the cluster's for a submission to be found in the accounting."""


class SlurmCluster:
    """Submits attempts to Slurm and ends them.

    Args:
        profile: The cluster.
        transport: The way to its login node.

    Attributes:
        profile: The cluster.
        name: Its name.
        python: The interpreter on its nodes, outside a container.
        client: The relay on its login node.
        slurm: The client of its Slurm.
        poller: What Slurm says of the user's jobs, asked politely.
    """

    def __init__(self, profile: Profile, transport: Transport) -> None:
        self.profile = profile
        self.name = profile.name
        self.python = outer_python(Slurm(), profile)
        self.client = RelayClient(transport)
        self.slurm = SlurmClient(self.client)
        self.poller = JobPoller(self.slurm)
        self._root = RemoteRoot(self.client, profile)

    @property
    def run_root(self) -> str:
        """Folder of the runs; see ``Cluster``."""
        return self._root.path

    def submit(self, attempt: AttemptPlace, after_job: str = "") -> str:
        """Hand the attempt's script to sbatch, once; see ``Cluster``."""
        self.poller.changed()
        return self.slurm.submit(
            f"{attempt.path}/{rundir.SCRIPT}",
            job_name=job_name_of(attempt.run_id, attempt.uuid),
            comment=comment_of(attempt.uuid),
            chdir=attempt.path,
            # afterany and not afternotok: a link that finished all steps is found out by the next one's first lines
            extra=[f"--dependency=afterany:{after_job}"] if after_job else (),
        )

    def find_submission(self, uuid: str, since: float) -> str | None:
        """The id of the job with this mark; see ``Cluster``."""
        return self.slurm.find_by_comment(uuid, since - SKEW_S)

    def cancel(self, attempt_path: str, job_id: str) -> bool:
        """End the attempt's job, and never one that got its id later; see ``Cluster``."""
        found = {
            file.path: file.text or "{}" for file in self.client.collect(attempt_path, [rundir.JOB, rundir.ADOPTED])
        }
        self.poller.changed()
        if rundir.ADOPTED in found:
            known = msgspec.convert(json.loads(found[rundir.ADOPTED])["job"], JobSnapshot)
            return self.slurm.cancel(job_id, known=known)
        return self.slurm.cancel(job_id, uuid=str(json.loads(found[rundir.JOB])["uuid"]))

    def jobs(self, job_ids: Sequence[str]) -> JobsSnapshot:
        """What Slurm says of these jobs; see ``Cluster``."""
        return self.poller.jobs(job_ids)

    def close(self) -> None:
        """End the relay."""
        self.client.close()
