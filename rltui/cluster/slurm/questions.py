"""What is asked of one Slurm cluster: all through the relay, nothing through a shell."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from rltui.cluster.facts import NodeFacts
from rltui.cluster.jobs import JobSnapshot
from rltui.cluster.queue_facts import QueuedJob
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.slurm.everybody import everybody_argv, read_everybody
from rltui.cluster.slurm.ids import base_id, checked, is_marked
from rltui.cluster.slurm.job_details import JobDetails, read_jobs
from rltui.cluster.slurm.nodes import NODES_ARGV, NODES_BYTES, read_nodes
from rltui.cluster.slurm.queries import (
    Place,
    accounting_argv,
    pending_argv,
    queue_argv,
    read_accounting,
    read_pending,
    read_queue,
    told_apart,
)
from rltui.cluster.slurm.records import new_mark
from rltui.cluster.slurm.replies import SlurmUnansweredError, Trouble, TroubleKind, is_format_refused
from rltui.cluster.slurm.runner import SlurmRunner
from rltui.cluster.slurm.steps import Allocation, read_allocations, read_steps, steps_argv

Answer = TypeVar("Answer")
DEFAULT_MIN_JOB_AGE_S = 300
QUEUE_BYTES = 16 << 20
"""For the answer on everybody's jobs: 300 bytes each, and there are queues of tens of thousands."""
LONGEST_AGO_S = 60 * 86400.0
"""How far back the accounting is ever asked: long spans are a burden to sites, and no job runs that long."""


class SlurmQuestions:
    """Asks one Slurm cluster as the user that the relay runs as.

    Questions raise ``SlurmUnansweredError`` where Slurm does not answer and ``ClusterError`` where the cluster cannot
    be reached.

    Args:
        relay: The relay, on a host with Slurm's tools.
        clock: Epoch seconds.
        settle_s: How long after a submission with a lost answer it may still turn up, so that no earlier "there is no
            such job" counts.
    """

    def __init__(self, relay: RelayClient, clock: Callable[[], float] = time.time, *, settle_s: float = 60.0) -> None:
        self.runner = SlurmRunner(relay, clock)
        self._clock = clock
        self._settle_s = settle_s
        self._uid = ""
        self._short_format = False
        self._config: str | None = None

    def now(self) -> float:
        """Epoch seconds by this machine's clock."""
        return self._clock()

    def uid(self) -> str:
        """The user's number on the cluster."""
        if not self._uid:
            self._uid = self.runner.relay.run(["id", "-u"], timeout_s=15, idempotent=True).out.strip()
        return self._uid

    def queue(self, only: Sequence[str] = ()) -> list[tuple[str, JobSnapshot]]:
        """All jobs of the user that the controller remembers, or those with ids ``only``; each with its owner's uid."""
        mark = new_mark()
        try:
            text = self._formatted(lambda short: queue_argv(mark, only=only, short=short))
        except SlurmUnansweredError as error:
            if only and error.trouble.kind == "gone":
                return []
            raise
        return read_queue(text, mark)

    def everybody(self) -> tuple[QueuedJob, ...]:
        """All jobs of all users that have not ended, as far as the site shows them.

        Like ``pending`` it makes the controller send other users' jobs: ask it rarely.
        """
        mark = new_mark()
        text = self._formatted(lambda short: everybody_argv(mark, short=short), QUEUE_BYTES)
        return read_everybody(text, mark, self.uid())

    def nodes(self) -> tuple[NodeFacts, ...]:
        """All nodes, with the GPUs that are taken."""
        return read_nodes(self.runner.ask(NODES_ARGV, limit=NODES_BYTES))

    def _formatted(self, argv: Callable[[bool], list[str]], limit: int = 0) -> str:
        """What squeue answers; one that does not know the form of the question is asked in the old one from then on."""
        try:
            return self.runner.ask(argv(self._short_format), limit=limit)
        except SlurmUnansweredError as error:
            if self._short_format or not is_format_refused(error.trouble.sentence):
                raise
        self._short_format = True
        return self.runner.ask(argv(True), limit=limit)

    def accounting(self, since: float, only: Sequence[str] = ()) -> list[tuple[str, JobSnapshot]]:
        """The records of the user's jobs since ``since`` (epoch seconds, our clock) and five minutes before."""
        mark = new_mark()
        span = min(LONGEST_AGO_S, max(0.0, self._clock() - since) + SLACK_S)
        argv = accounting_argv(mark, span, only=only, user=self.uid())
        rows = read_accounting(self.runner.ask(argv), mark)
        return [(uid, replace(job, cancelled_by="me") if job.cancelled_by == self.uid() else job) for uid, job in rows]

    def attempts(self, job_id: str, since: float = 0.0) -> tuple[JobSnapshot, ...]:
        """Every start of a job, oldest first: requeues keep the id, and only the submit times tell them apart."""
        return tuple(told_apart([job for _, job in self.accounting(since, [checked(job_id)])]))

    def details(self, job_id: str) -> tuple[JobDetails, ...]:
        """What the controller knows of a job, whoever owns it: several where the id is an array's; none of an unknown.

        Raises:
            SlurmUnansweredError: It did not answer.
        """
        return self._told_of(["scontrol", "--oneliner", "show", "job", checked(job_id)], read_jobs, ())

    def allocations(self, job_id: str) -> tuple[Allocation, ...]:
        """A job as a place to run in, whoever owns it: several where the id is an array's; none of an unknown."""
        argv = ["scontrol", "--details", "--oneliner", "show", "job", checked(job_id)]
        return self._told_of(argv, read_allocations, ())

    def step_of(self, uuid: str) -> str | None:
        """The id of the step with an attempt's mark in its name; None where it has ended, or never was."""
        mark = new_mark()
        steps = read_steps(self.runner.ask(steps_argv(mark)), mark)
        return next((step for step, name in steps.items() if name.endswith(f"-{uuid[:8]}")), None)

    def batch_script(self, job_id: str) -> str:
        """The text that a job was submitted with; empty where it has none, or the controller gives none away."""
        argv = ["scontrol", "write", "batch_script", checked(job_id), "-"]
        return self._told_of(argv, str, "", but=("gone", "refused", "unknown"))

    def _told_of(
        self,
        argv: Sequence[str],
        read: Callable[[str], Answer],
        otherwise: Answer,
        but: Sequence[TroubleKind] = ("gone", "refused"),
    ) -> Answer:
        try:
            return read(self.runner.ask(argv))
        except SlurmUnansweredError as error:
            if error.trouble.kind not in but:
                raise
            return otherwise

    def pending(self, partitions: Sequence[str]) -> dict[str, Place]:
        """The place in its partition's queue, from 1, of every pending job that may start; empty where jobs are hidden.

        This is the one question that makes the controller send other users' jobs: ask it rarely.
        """
        if self.hides_jobs():
            return {}
        mark = new_mark()
        return read_pending(self.runner.ask(pending_argv(mark, partitions)), mark)

    def hides_jobs(self) -> bool:
        """Whether the site hides other users' jobs (``PrivateData=jobs``)."""
        match = re.search(r"(?m)^PrivateData\s*=\s*(\S+)", self._settings())
        return match is not None and "jobs" in match[1].split(",")

    def remembers_s(self) -> float:
        """For how long the controller surely still lists a job that has ended: ``MinJobAge`` less a minute."""
        match = re.search(r"(?m)^MinJobAge\s*=\s*([0-9]{1,9})", self._settings())
        age_s = int(match[1]) if match else DEFAULT_MIN_JOB_AGE_S
        return age_s - 60.0 if age_s else math.inf  # 0: it never forgets

    def _settings(self) -> str:
        if self._config is None:
            self._config = self.runner.ask(["scontrol", "show", "config"])
        return self._config

    def find_by_comment(self, uuid: str, since: float) -> str | None:
        """The id of the job with the mark ``rltui:<uuid>``, or None where Slurm certainly has none.

        Args:
            uuid: The attempt's mark.
            since: When it may have been submitted, epoch seconds by this machine's clock.

        Raises:
            ClusterError: Slurm or its accounting did not answer, so None would be a guess.
        """
        return find(self, uuid, max(0.0, self._clock() - since), self._settle_s)


SLACK_S = 300.0
"""How much earlier than we remember a job may have been submitted, for clocks that differ."""

WITHOUT_ACCOUNTING = frozenset({"no-accounting", "missing"})


def find(client: SlurmQuestions, uuid: str, age_s: float, settle_s: float) -> str | None:
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


def _in_accounting(client: SlurmQuestions, uuid: str, age_s: float) -> str | None:
    try:
        rows = client.accounting(client.now() - age_s)
    except SlurmUnansweredError as error:
        # a job so young is in the queue's answer whatever happened to it, and that answer had none
        if error.trouble.kind in WITHOUT_ACCOUNTING and age_s < client.remembers_s():
            return None
        raise
    return first_marked([job for _, job in rows], uuid)
