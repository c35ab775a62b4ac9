"""A job of anybody's in the queue of a cluster: what it holds, or where it waits."""

from __future__ import annotations

from msgspec import Struct

from rltui.cluster.jobs import JobState
from rltui.cluster.slurm.nodelist import fold


class QueuedJob(Struct, frozen=True, kw_only=True):
    """One job of anybody's. Times are epoch seconds by the scheduler's clock; 0 where it does not say."""

    job_id: str
    state: JobState
    user: str = ""
    is_mine: bool = False
    name: str = ""
    partition: str = ""
    """Several with commas where it waits in all of them."""
    reason: str = ""
    """Why it waits, the scheduler's short word."""
    gpus: int | None = None
    """GPUs that it has or asks for altogether; None where nobody can tell."""
    gpu: str = ""
    """Their type, where it is named."""
    nodes: tuple[str, ...] = ()
    cards: tuple[int, ...] = ()
    """Indices of the GPUs that it holds, where it is told; all on one node."""
    node_count: int = 0
    submitted_at: float = 0.0
    since: float = 0.0
    """When it began to hold what it holds, where that is told."""
    expected_start_at: float = 0.0
    left_s: float | None = None
    """Seconds until its time limit, of one that runs; None where there is none."""
    limit_s: float | None = None
    priority: int = 0
    position: int | None = None
    """1 is next among those that wait in its partition; None where it does not wait, or is held."""
    waiting: int | None = None
    """Jobs that wait there altogether."""

    @property
    def where(self) -> str:
        """Its nodes as Slurm folds them, and which of the GPUs; empty where it holds none."""
        cards = f"GPU {','.join(map(str, self.cards))}" if self.cards else ""
        return " ".join(filter(None, (fold(self.nodes) if self.nodes else "", cards)))

    @property
    def waits(self) -> bool:
        """Whether it holds nothing yet."""
        return self.state == "pending"
