"""Prompts to the engines and their samples back: two bounded queues, and a feeder for each engine."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainers.gate import Gate
from trainers.queues import BoundedQueue, QueueClosedError
from trainers.roles.calls import POLL_S, Role, RoleDiedError, RoleError, call_all
from trainers.roles.engine import grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rltui.layout.schema import Layout
    from trainers.data.prompts import EnginePrompt
    from trainers.early import OnAnswer
    from trainers.roles.engine import Completion, SamplingSettings

SEQUENCES_PER_ENGINE = 256
"""Most samples an engine is asked for at once, unless the layout says otherwise."""


@dataclass
class Ticket:
    """What ``Rollouts.submit`` gives and ``Rollouts.collect`` takes.

    Attributes:
        lane: Of the result queue.
        groups: The samples of each prompt, as far as they were collected.
        chunks: Calls that are still to be collected.
    """

    lane: int
    groups: list[list[Completion]] = field(repr=False)
    chunks: int = 0


@dataclass(frozen=True)
class Chunk:
    """Prompts that one engine answers in one call.

    Attributes:
        lane: Of the result queue.
        first: Number of the first prompt in its ticket.
        prompts: The prompts.
        sampling: How they are sampled.
        on_answer: See ``Rollouts.submit``.
    """

    lane: int
    first: int
    prompts: list[EnginePrompt]
    sampling: SamplingSettings
    on_answer: OnAnswer | None = None


class Rollouts:
    """Feeds prompts to the engines and collects their samples.

    Which engine answers which prompts is fixed, because an engine's number is part of its seeds: a step that is
    repeated after a resume draws the same samples, where its weights are the same. An engine that dies keeps its feeder
    waiting, with its work in hand, until ``gate.mend``.

    Args:
        engines: The engines.
        prompts_per_step: Most prompts of one ticket.
        samples_per_prompt: With ``sequences``, bounds the prompts of one call.
        deadline_s: Most seconds for one call.
        ahead: Most tickets that wait behind the one that is collected.
        sequences: Most samples an engine is asked for at once.

    Attributes:
        prompts: The prompt queue, a lane for each engine.
        results: The result queue, a lane for each ticket under way.
        gate: What the feeders pass before each call.
    """

    def __init__(
        self,
        engines: Sequence[Role],
        prompts_per_step: int,
        samples_per_prompt: int,
        deadline_s: float,
        ahead: int = 0,
        sequences: int = SEQUENCES_PER_ENGINE,
    ) -> None:
        room = (ahead + 1) * prompts_per_step
        self.prompts: BoundedQueue[Chunk] = BoundedQueue(room, lanes=len(engines))
        self.results: BoundedQueue[tuple[Chunk, list[Completion] | RoleError]] = BoundedQueue(room, lanes=ahead + 2)
        self.gate = Gate(len(engines))
        self._engines, self._deadline_s, self._ahead = engines, deadline_s, ahead
        self._chunk_prompts = prompts_per_chunk(prompts_per_step, samples_per_prompt, len(engines), sequences)
        for lane, engine in enumerate(engines):
            threading.Thread(target=self._feed, args=(lane, engine), name=f"feed {engine.name}", daemon=True).start()

    def submit(
        self,
        step: int,
        prompts: Sequence[EnginePrompt],
        sampling: Sequence[SamplingSettings],
        on_answer: OnAnswer | None = None,
    ) -> Ticket:
        """Have every prompt sampled in its turn; at most ``ahead`` + 1 steps in a row are under way at once.

        Args:
            step: Number of the training step.
            prompts: Each prompt, as engines take it.
            sampling: Settings for each chunk of prompts, see ``num_chunks``.
            on_answer: Called by a feeder as soon as a chunk was answered, with the number of its first prompt, how many
                it has, and their completions.
        """
        return self._submit(step % (self._ahead + 1), prompts, sampling, on_answer)

    def collect(self, ticket: Ticket, check: Callable[[], None]) -> list[list[Completion]]:
        """The samples of each prompt of ``ticket``, when all are there.

        Args:
            ticket: What was submitted.
            check: Called at least every ``POLL_S``; what it raises ends the wait.

        Raises:
            RoleError: An engine failed or did not answer in time. That one died is reported to the gate instead.
        """
        while ticket.chunks:
            chunk, completions = self._next_result(ticket.lane, check)
            ticket.groups[chunk.first : chunk.first + len(chunk.prompts)] = grouped(completions, len(chunk.prompts))
            ticket.chunks -= 1
        return ticket.groups

    def generate(
        self, prompts: Sequence[EnginePrompt], sampling: Sequence[SamplingSettings], check: Callable[[], None]
    ) -> list[list[Completion]]:
        """Sample every prompt now, before what was submitted for steps to come; arguments and errors as above."""
        return self.collect(self._submit(self._ahead + 1, prompts, sampling, is_first=True), check)

    def num_chunks(self, num_prompts: int) -> int:
        """Calls that ``num_prompts`` prompts are cut into."""
        return -(-num_prompts // self._chunk_prompts)

    def close(self) -> None:
        """End the feeders that wait for work."""
        self.prompts.close()
        self.results.close()
        self.gate.close()

    def _submit(
        self,
        lane: int,
        prompts: Sequence[EnginePrompt],
        sampling: Sequence[SamplingSettings],
        on_answer: OnAnswer | None = None,
        *,
        is_first: bool = False,
    ) -> Ticket:
        size = self._chunk_prompts
        ticket = Ticket(lane, [[] for _ in prompts], self.num_chunks(len(prompts)))
        for number, start in enumerate(range(0, len(prompts), size)):
            part = list(prompts[start : start + size])
            chunk = Chunk(lane, start, part, sampling[number], on_answer)
            self.prompts.put(chunk, len(part), lane=number % len(self._engines), first=is_first)
        return ticket

    def _next_result(self, lane: int, check: Callable[[], None]) -> tuple[Chunk, list[Completion]]:
        """The next answer; the wait is bounded by the deadline of the feeders' calls."""
        while True:
            check()
            try:
                chunk, answer = self.results.take(lane, timeout_s=POLL_S)
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
                try:
                    answer = self._ask(lane, engine, chunk)
                    if chunk.on_answer is not None:
                        chunk.on_answer(chunk.first, len(chunk.prompts), answer)
                except RoleError as error:
                    answer = error
                self.results.put((chunk, answer), len(chunk.prompts), chunk.lane)
        except QueueClosedError:
            return

    def _ask(self, lane: int, engine: Role, chunk: Chunk) -> list[Completion]:
        """The engine's answer to ``chunk``, from a process started later where the first one dies."""
        while isinstance(answer := self._try(lane, engine, chunk), RoleDiedError):
            self.gate.await_repair(lane, answer)
        return answer

    def _try(self, lane: int, engine: Role, chunk: Chunk) -> list[Completion] | RoleDiedError:
        with self.gate.passing(lane):
            actor = engine.actor
            call = (engine, actor.generate.remote(chunk.prompts, chunk.sampling))
            try:
                answer: list[Completion] = call_all([call], self._deadline_s, "generating")[0]
            except RoleDiedError as error:
                error.actor = actor  # by now, the role may have another one
                return error
            return answer


def prompts_per_chunk(
    prompts_per_step: int, samples_per_prompt: int, num_engines: int, sequences: int = SEQUENCES_PER_ENGINE
) -> int:
    """Prompts of one call: an equal share for each engine, but no more than it can work on at once."""
    return max(1, min(-(-prompts_per_step // num_engines), sequences // samples_per_prompt))


def sequences_per_engine(layout: Layout) -> int:
    """Samples that an engine works on at once."""
    return layout.roles.rollout.max_concurrency or SEQUENCES_PER_ENGINE
