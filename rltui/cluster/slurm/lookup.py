"""Whether a submission whose answer was lost arrived: when a "no such job" may be believed, and when it is a guess."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rltui.cluster.slurm.errors import SlurmUnansweredError
from rltui.cluster.slurm.ids import base_id
from rltui.cluster.slurm.marks import is_marked
from rltui.cluster.slurm.replies import Trouble

if TYPE_CHECKING:
    from rltui.cluster.jobs import JobSnapshot
    from rltui.cluster.slurm.client import SlurmClient

SLACK_S = 300.0
"""How much earlier than we remember a job may have been submitted, for clocks that differ."""

WITHOUT_ACCOUNTING = frozenset({"no-accounting", "missing"})


def find(client: SlurmClient, uuid: str, age_s: float, settle_s: float) -> str | None:
    """Look for the job with a mark, submitted at most ``age_s`` ago.

    Raises:
        ClusterError: None would be a guess.
    """
    found = first_marked([job for _, job in client.queue()], uuid)
    if found is not None:
        return found
    found = _in_accounting(client, uuid, age_s)
    if found is None and age_s < settle_s:
        raise SlurmUnansweredError(
            Trouble("unknown", "too early"),
            f"It is too early to say that the job was not submitted: {age_s:.0f} of {settle_s:.0f} s have passed.",
        )
    return found


def first_marked(jobs: Sequence[JobSnapshot], uuid: str) -> str | None:
    """The id of the marked job, the oldest where there are several; of a het job the number that sbatch gives."""
    marked = [job for job in jobs if is_marked(job, uuid)]
    return base_id(min(marked, key=lambda job: (job.submitted_at, job.job_id)).job_id) if marked else None


def _in_accounting(client: SlurmClient, uuid: str, age_s: float) -> str | None:
    try:
        rows = client.accounting(client.now() - age_s)
    except SlurmUnansweredError as error:
        # a job so young is in the queue's answer whatever happened to it, and that answer had none
        if error.trouble.kind in WITHOUT_ACCOUNTING and age_s < client.remembers_s():
            return None
        raise
    return first_marked([job for _, job in rows], uuid)
