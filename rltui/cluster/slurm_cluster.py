"""A Slurm cluster as a place that runs attempts."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import msgspec

from rltui.cluster.cluster import Attempt, SubmitRefusedError, SubmitUnknownError
from rltui.cluster.jobs import AllocationShare, JobSnapshot, JobsSnapshot
from rltui.cluster.plain_text import plain
from rltui.cluster.profile import Profile, outer_python
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import RelayError
from rltui.cluster.remote_paths import RemoteRoot
from rltui.cluster.slurm.client import SlurmClient
from rltui.cluster.slurm.ids import comment_of, job_name_of, read_id
from rltui.cluster.slurm.poller import JobPoller
from rltui.cluster.slurm.steps import start_argv
from rltui.cluster.transport import Transport
from rltui.errors import RltuiError
from rltui.layout.settings import Slurm
from rltui.onnode import rundir

SKEW_S = 900.0
"""How far this machine's clock may be from the cluster's for a submission to be found in the accounting."""

STEP_STARTS_S = 60.0
"""How long a step may take to its first deed, which is to take the attempt's lock."""

STEP_LOOK_S = 0.5
STEP_ENDED = "rltui: srun ended"


class SlurmCluster:
    """Submits attempts to Slurm and ends them.

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
        self.client.slurm_cluster = profile.slurm_cluster
        self.slurm = SlurmClient(self.client)
        self.poller = JobPoller(self.slurm)
        self._root = RemoteRoot(self.client, profile)

    @property
    def run_root(self) -> str:
        """Folder of the runs; see ``Cluster``."""
        return self._root.path

    def submit(self, attempt: Attempt, after_job: str = "", hold_s: float = 0.0) -> str:
        """Hand the attempt's script to sbatch, once; see ``Cluster``."""
        self.poller.changed()
        # afterany and not afternotok: a link that finished all steps is found out by the next one's first lines
        dependency = [f"--dependency=afterany:{after_job}"] if after_job else []
        return self.slurm.submit(
            f"{attempt.path}/{rundir.SCRIPT}",
            job_name=job_name_of(attempt.run_id, attempt.uuid),
            comment=comment_of(attempt.uuid),
            chdir=attempt.path,
            # on an idle cluster a job has started before anybody could tell Slurm to hold it back
            extra=[*dependency, *([f"--begin=now+{hold_s:.0f}"] if hold_s else [])],
        )

    def start_step(self, attempt: Attempt, share: AllocationShare, shell: Sequence[str]) -> str:
        """Start the attempt's script as a step of somebody's allocation, once, and return that job's id.

        Args:
            attempt: The attempt; its files are in place.
            share: What it gets of the allocation.
            shell: What runs the script.

        Raises:
            SubmitRefusedError: No step was started; the message is srun's reason.
            SubmitUnknownError: Nobody can tell.
        """
        if self.profile.slurm_cluster:
            raise SubmitRefusedError(
                f"A step cannot be started from another cluster than {self.profile.slurm_cluster}'s own.",
                "`rltui launch … --here` in the allocation's shell does it there.",
            )
        self.poller.changed()
        log = f"{attempt.path}/slurm-{share.job_id}.out"
        name = job_name_of(attempt.run_id, attempt.uuid)
        script = [*shell, f"{attempt.path}/{rundir.SCRIPT}"]
        argv = start_argv(attempt.path, log, name, share.job_id, share.nodes[0], share.cpus, script)
        try:
            done = self.client.run(argv, timeout_s=30)
        except RelayError as error:
            raise SubmitUnknownError(f"The answer of srun was lost: {error.message}", error.hint) from error
        if done.rc:
            raise SubmitRefusedError(f"srun cannot be started: {plain(done.err.strip())[-300:]}")
        self._await_step(attempt, log)
        return share.job_id

    def _await_step(self, attempt: Attempt, log: str) -> None:
        """Wait until the step has taken the attempt's lock."""
        lock = rundir.lock_folder(attempt.path, attempt.uuid).rpartition("/")[2]
        deadline = time.monotonic() + STEP_STARTS_S
        while True:
            said = self.client.tail(log, 4000).data.decode("utf-8", "replace") if self._has(log) else ""
            if self._has(f"{attempt.path}/{lock}"):
                return
            if STEP_ENDED in said:
                words = [line for line in said.splitlines() if "error" in line] or said.splitlines()
                raise SubmitRefusedError(f"Slurm started no step: {plain(words[0])[:300]}")
            if time.monotonic() > deadline:
                raise SubmitUnknownError(f"The step said nothing for {STEP_STARTS_S:.0f} s.", "rltui looks for it.")
            time.sleep(STEP_LOOK_S)

    def _has(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        # listed, not opened: NFS may say for seconds that a file is not there which was missing before
        return any(entry.name == name for entry in self.client.list(folder))

    def find_submission(self, uuid: str, since: float) -> str | None:
        """The id of the job with this mark, or of the one that a step with it is in; see ``Cluster``."""
        found = self.slurm.find_by_comment(uuid, since - SKEW_S)
        step = None if found else self.slurm.step_of(uuid)
        return step.partition(".")[0] if step else found

    def cancel(self, attempt_path: str, job_id: str) -> bool:
        """End the attempt's job, and never one that got its id later; see ``Cluster``."""
        uuid, known, is_step = self._identity(attempt_path)
        self.poller.changed()
        if is_step:
            return self._cancel_step(attempt_path, uuid)
        return self.slurm.cancel(job_id, uuid=uuid, known=known)

    def signal(self, attempt_path: str, job_id: str, name: str) -> bool:
        """Send a signal to the attempt's driver, or to the steps of a job that rltui did not start; see ``Cluster``."""
        uuid, known, is_step = self._identity(attempt_path)
        if is_step:
            run_id = rundir.run_id_of(attempt_path)
            raise RltuiError(
                "The run is a step of an allocation, where a signal of Slurm's may reach more than the run.",
                f"`rltui cancel {run_id}` lets it save and end, and leaves the allocation.",
            )
        # scancel signals the steps and not the batch script; --batch signals that alone, which is the driver
        reach = ["--full"] if name == "KILL" else [] if known is not None else ["--batch"]
        return self.slurm.signal(job_id, [*reach, f"--signal={name}"], uuid=uuid, known=known)

    def nodes_of(self, attempt_path: str, job_id: str) -> dict[str, int | None]:
        """The nodes that the attempt's job has now, each with its component where it is a het job.

        None where it has ended, or its id is another job's by now.

        Raises:
            RltuiError: The job is not the user's.
            ClusterError: Slurm cannot be asked.
        """
        uuid, known, is_step = self._identity(attempt_path)
        jobs = self.slurm.living(job_id, uuid="" if is_step else uuid, known=known)
        parts = {job.job_id: read_id(job.job_id) for job in jobs}
        return {node: part.part if (part := parts[job.job_id]) else None for job in jobs for node in job.nodes}

    def _identity(self, attempt_path: str) -> tuple[str, JobSnapshot | None, bool]:
        """What an attempt's job is known by: mark, or the job itself where it was adopted; and whether it is a step."""
        found = {
            file.path: file.text or "{}" for file in self.client.collect(attempt_path, [rundir.JOB, rundir.ADOPTED])
        }
        if rundir.ADOPTED in found:
            return "", msgspec.convert(json.loads(found[rundir.ADOPTED])["job"], JobSnapshot), False
        job = json.loads(found[rundir.JOB])
        return str(job["uuid"]), None, bool(job.get("allocation"))

    def _cancel_step(self, attempt_path: str, uuid: str) -> bool:
        """Ask the driver to end the run, which is all that is ours: the allocation is somebody's, and stays.

        By a file, as a signal of Slurm's may reach every process of a step at once, and the trainer is to save first.
        """
        if self.slurm.step_of(uuid) is None:
            return False
        self.client.put(f"{attempt_path}/{rundir.CANCEL}", b"{}\n")
        return True

    def jobs(self, job_ids: Sequence[str]) -> JobsSnapshot:
        """What Slurm says of these jobs; see ``Cluster``."""
        return self.poller.jobs(job_ids)

    def close(self) -> None:
        """End the relay; jobs go on, and so does Slurm's word of them."""
        self.client.close()
