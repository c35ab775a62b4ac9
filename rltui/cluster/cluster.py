"""What a place that runs attempts can do, whatever its scheduler: this machine, Slurm, or a standing Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from rltui.errors import ClusterError, RltuiError

if TYPE_CHECKING:
    from rltui.cluster.jobs import JobsSnapshot
    from rltui.cluster.profile import Profile
    from rltui.cluster.relay_client import RelayClient


class SubmitRefusedError(RltuiError):
    """The scheduler said no: certainly nothing was submitted."""


class SubmitUnknownError(ClusterError):
    """The answer was lost: the job may or may not be there. Look it up; never submit it again blindly."""


class Attempt(Struct, frozen=True, kw_only=True):
    """One submission of a run, on a cluster's disk.

    Attributes:
        run_id: The run it belongs to.
        number: Its number in the run, from 1.
        uuid: The mark that every process, the job's comment and the journal carry.
        path: Its directory on the cluster.
        code: The folder of the code it runs with, on the cluster.
    """

    run_id: str
    number: int
    uuid: str
    path: str
    code: str


class Cluster(Protocol):
    """One place. Its methods may block on the network, so screens call them in worker threads only.

    Attributes:
        profile: What is known of it beforehand.
        client: The relay; it connects when it is first asked.
    """

    profile: Profile
    client: RelayClient

    @property
    def name(self) -> str:
        """The name of its profile, as ``--cluster`` takes it."""

    @property
    def python(self) -> str:
        """The interpreter of supervisor and trainers there."""

    @property
    def run_root(self) -> str:
        """Absolute path of the folder of the runs there; a leading ``~`` is looked up there once."""

    def submit(self, attempt: Attempt, after_job: str = "", hold_s: float = 0.0) -> str:
        """Hand the attempt (its files are in place) to the scheduler; returns the scheduler's id of it.

        Args:
            attempt: What to start.
            after_job: Id of a job that must have ended, however, before this one starts.
            hold_s: How long the scheduler holds it back, where it can: Slurm.

        Raises:
            SubmitRefusedError: Nothing was submitted; the message is the scheduler's reason.
            SubmitUnknownError: Nobody can tell.
        """

    def find_submission(self, uuid: str, since: float) -> str | None:
        """The scheduler's id of the attempt with this mark, or None where the scheduler knows of none.

        Args:
            uuid: The attempt's mark.
            since: When it may have been submitted, epoch seconds by this machine's clock; five minutes of slack are
                taken for clock skew.

        Raises:
            ClusterError: The scheduler cannot be asked, so None would be a guess.
        """

    def cancel(self, attempt_path: str, job_id: str) -> bool:
        """Ask the scheduler to end that job; False where it has ended already.

        Raises:
            ClusterError: It is unknown whether the word got through.
        """

    def signal(self, attempt_path: str, job_id: str, name: str) -> bool:
        """Send a signal to the attempt's driver, which passes some on; False where it has ended already.

        Args:
            attempt_path: The attempt's directory.
            job_id: The scheduler's id of it.
            name: Such as ``USR1``; ``KILL`` reaches all of the attempt.

        Raises:
            RltuiError: It cannot be sent there.
            ClusterError: It is unknown whether it got through.
        """

    def jobs(self, job_ids: Sequence[str]) -> JobsSnapshot:
        """What the scheduler says of these jobs, from the last poll that its interval allows; never one call a job."""

    def close(self) -> None:
        """End the relay over there; what runs on the cluster goes on."""
