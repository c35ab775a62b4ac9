"""Jobs as a scheduler tells of them: one frozen picture for Slurm, Ray and the local queue."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

JobState = Literal["pending", "running", "suspended", "completing", "completed", "failed", "cancelled", "unknown"]
"""What every scheduler's own words are folded into. ``completing`` is not over: its GPUs are still held."""

ENDED_STATES: frozenset[str] = frozenset({"completed", "failed", "cancelled"})


class AllocationShare(Struct, frozen=True, kw_only=True):
    """What a run has of an allocation that it did not ask for itself: somebody's ``salloc`` or running job.

    Attributes:
        job_id: The allocation.
        nodes: The run's nodes in it, its head first.
        cpus: CPU cores that the allocation has on each.
        restarts: How often Slurm had started that job again when the run began: a later start is not the run's.
        left_s: How long the allocation still had then; 0: without a limit, or nobody knows.
    """

    job_id: str
    nodes: tuple[str, ...]
    cpus: int = 1
    restarts: int = 0
    left_s: float = 0.0


class JobSnapshot(Struct, frozen=True, kw_only=True):
    """One job at one time. Times are epoch seconds by the scheduler's clock; 0 where it does not say."""

    job_id: str
    state: JobState = "unknown"
    word: str = ""
    """The scheduler's own word, such as ``NODE_FAIL`` or ``OUT_OF_MEMORY``."""
    name: str = ""
    comment: str = ""
    user: str = ""
    partition: str = ""
    account: str = ""
    reason: str = ""
    """Why it waits, the scheduler's short word, such as ``Priority``."""
    held_back: str = ""
    """Until when and why it waits, where hands-off mode has the scheduler hold it."""
    ending: str = ""
    """How it ended, in a sentence of the scheduler's own, where it has one: Ray's."""
    submitted_at: float = 0.0
    expected_start_at: float = 0.0
    started_at: float = 0.0
    ended_at: float = 0.0
    time_limit_s: float = 0.0
    nodes: tuple[str, ...] = ()
    node_count: int = 0
    restarts: int = 0
    exit_code: int | None = None
    signal: int | None = None
    cancelled_by: str = ""
    """Who cancelled it, where that is known: ``me`` or a user's id."""
    queue_position: int | None = None
    """1 is next among the pending jobs of its partition; None where it does not wait or nobody knows."""
    partition_pending: int | None = None
    """Jobs that wait in its partition altogether; None where nobody knows."""
    run_id: str = ""
    """The run whose job it is, where rltui knows, for commands about it."""
    failed_nodes: tuple[str, ...] = ()
    """Nodes that failed under it, where rltui found out which; no scheduler says."""

    @property
    def has_ended(self) -> bool:
        """Whether it is over for good under this id, as far as the scheduler knows now."""
        return self.state in ENDED_STATES


class JobsSnapshot(Struct, frozen=True, kw_only=True):
    """The answer to one poll."""

    jobs: dict[str, JobSnapshot] = {}
    """By job id; one that the scheduler does not know of is absent, which does not mean that it ended."""
    taken_at: float = 0.0
    """When the scheduler last answered, by this machine's clock; 0: never."""
    problem: str = ""
    """Why the picture is old: controller down, rate limit; empty where it is fresh."""
