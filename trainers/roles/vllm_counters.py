"""What vLLM's scheduler counts: requests that run and wait, use of the KV cache, preemptions."""

from __future__ import annotations

from typing import Any


class VllmCounters:
    """Takes the place of vLLM's own statistics, which would print and serve what the run's metrics say for each step.

    Attributes:
        waiting: Requests that the last step did not work on, though they are in the engine.
        cache_share: Share of the KV cache that was in use in it.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self.cache_share = 0.0
        self._preempted = 0

    def record(self, scheduler_stats: Any = None, iteration_stats: Any = None, **_: Any) -> None:
        """Take what vLLM counted of one step; it leaves out what it has not got."""
        if scheduler_stats is not None:
            self.waiting = scheduler_stats.num_waiting_reqs + scheduler_stats.num_skipped_waiting_reqs
            self.cache_share = scheduler_stats.kv_cache_usage
        if iteration_stats is not None:
            self._preempted += iteration_stats.num_preempted_reqs

    def take_preempted(self) -> int:
        """Requests since the last call whose cache was taken from them, so that it is computed anew."""
        taken, self._preempted = self._preempted, 0
        return taken

    def log(self) -> None:
        """Print nothing: vLLM asks for it every few seconds."""

    def record_sleep_state(self, sleep: int, level: int) -> None:
        """Keep nothing of what the engine's own calls have brought about."""
