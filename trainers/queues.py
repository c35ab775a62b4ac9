"""Prompts on their way to the engines and samples on their way back: two bounded queues and a feeder per engine."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from trainers.roles.calls import POLL_S, Role, RoleError, call_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainers.roles.engine import Completion, SamplingSettings

SEQUENCES_PER_ENGINE = 256
"""Most samples an engine is asked for at once."""

Item = TypeVar("Item")


class QueueClosedError(RuntimeError):
    """Nothing comes any more."""


class BoundedQueue(Generic[Item]):
    """A queue whose items have sizes (in prompts) and whose total size is bounded, with a lane for each taker.

    Attributes:
        maxsize: Most prompts in the queue at once.
    """

    def __init__(self, maxsize: int, lanes: int = 1) -> None:
        self.maxsize = maxsize
        self._lanes: list[deque[tuple[Item, int]]] = [deque() for _ in range(lanes)]
        self._current = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def current(self) -> int:
        """Prompts in the queue."""
        return self._current

    def put(self, item: Item, size: int, lane: int = 0) -> None:
        """Append ``item`` to ``lane``, waiting for room; takers have deadlines, so room comes or the queue is closed.

        Raises:
            QueueClosedError: The queue was closed.
            ValueError: The item could never fit.
        """
        if size > self.maxsize:
            raise ValueError(f"an item of {size} prompts does not fit a queue of {self.maxsize}")
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._current + size <= self.maxsize)
            self._raise_if_closed()
            self._lanes[lane].append((item, size))
            self._current += size
            self._changed.notify_all()

    def take(self, lane: int = 0, timeout_s: float | None = None) -> Item:
        """Take the oldest item of ``lane``, waiting for one.

        Raises:
            QueueClosedError: The queue was closed.
            TimeoutError: Nothing came within ``timeout_s``.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed or self._lanes[lane], timeout_s):
                raise TimeoutError(f"nothing came within {timeout_s:g} s")
            self._raise_if_closed()
            item, size = self._lanes[lane].popleft()
            self._current -= size
            self._changed.notify_all()
            return item

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise QueueClosedError


@dataclass(frozen=True)
class Chunk:
    """Prompts that one engine answers in one call; ``first`` is the number of the first of them in the step."""

    first: int
    prompts: list[list[int]]
    sampling: SamplingSettings


class Rollouts:
    """Feeds prompts to the engines and collects their samples.

    Which engine answers which prompts is fixed, because an engine's number is part of its seeds: a step that is
    repeated after a resume draws the same samples.

    Args:
        engines: The engines.
        prompts_per_step: Bound of both queues.
        samples_per_prompt: With ``SEQUENCES_PER_ENGINE``, bounds the prompts of one call.
        deadline_s: Most seconds for one call.

    Attributes:
        prompts: The prompt queue, a lane for each engine.
        results: The result queue.
    """

    def __init__(
        self, engines: Sequence[Role], prompts_per_step: int, samples_per_prompt: int, deadline_s: float
    ) -> None:
        self.prompts: BoundedQueue[Chunk] = BoundedQueue(prompts_per_step, lanes=len(engines))
        self.results: BoundedQueue[tuple[Chunk, list[Completion] | RoleError]] = BoundedQueue(prompts_per_step)
        self._engines, self._deadline_s = engines, deadline_s
        self._chunk_prompts = prompts_per_chunk(prompts_per_step, samples_per_prompt, len(engines))
        for lane, engine in enumerate(engines):
            threading.Thread(target=self._feed, args=(lane, engine), name=f"feed {engine.name}", daemon=True).start()

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Sequence[SamplingSettings], check: Callable[[], None]
    ) -> list[list[Completion]]:
        """Sample every prompt.

        Args:
            prompts: Token ids of each prompt of the step.
            sampling: Settings for each chunk of prompts, see ``num_chunks``.
            check: Called at least every ``POLL_S``; what it raises ends the wait.

        Returns:
            The samples of each prompt.

        Raises:
            RoleError: An engine failed, died or did not answer in time.
        """
        size = self._chunk_prompts
        starts = range(0, len(prompts), size)
        for number, first in enumerate(starts):
            part = [list(prompt) for prompt in prompts[first : first + size]]
            self.prompts.put(Chunk(first, part, sampling[number]), len(part), lane=number % len(self._engines))
        groups: list[list[Completion]] = [[] for _ in prompts]
        for _ in starts:
            chunk, completions = self._next_result(check)
            for completion in completions:
                groups[chunk.first + completion.prompt_index].append(completion)
        return groups

    def num_chunks(self, num_prompts: int) -> int:
        """Calls that ``num_prompts`` prompts are cut into."""
        return -(-num_prompts // self._chunk_prompts)

    def close(self) -> None:
        """End the feeders that wait for work."""
        self.prompts.close()
        self.results.close()

    def _next_result(self, check: Callable[[], None]) -> tuple[Chunk, list[Completion]]:
        """The next answer; the wait is bounded by the deadline of the feeders' calls."""
        while True:
            check()
            try:
                chunk, answer = self.results.take(timeout_s=POLL_S)
            except TimeoutError:
                continue
            if isinstance(answer, RoleError):
                raise answer
            return chunk, answer

    def _feed(self, lane: int, engine: Role) -> None:
        answer: list[Completion] | RoleError
        try:
            while True:
                chunk = self.prompts.take(lane)
                call = (engine, engine.actor.generate.remote(chunk.prompts, chunk.sampling))
                try:
                    answer = call_all([call], self._deadline_s, "generating")[0]
                except RoleError as error:
                    answer = error
                self.results.put((chunk, answer), len(chunk.prompts))
        except QueueClosedError:
            return


def prompts_per_chunk(prompts_per_step: int, samples_per_prompt: int, num_engines: int) -> int:
    """Prompts of one call: an equal share for each engine, but no more than it can work on at once."""
    return max(1, min(-(-prompts_per_step // num_engines), SEQUENCES_PER_ENGINE // samples_per_prompt))
