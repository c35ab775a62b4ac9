"""Prompts to the engines and their samples back, without barriers: an engine gets a prompt when slots are free."""

from __future__ import annotations

import itertools
import statistics
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from trainers.dispatch import Dispatch, DispatchClosedError
from trainers.roles.calls import POLL_S, Role, RoleDiedError, RoleError, call_all
from trainers.roles.completions import Request, derive_seed

if TYPE_CHECKING:
    from rltui.layout.schema import Layout
    from trainers.data.prompts import EnginePrompt
    from trainers.prefetch import OnAnswer
    from trainers.roles.completions import Completion, Streamed
    from trainers.roles.sampling import SamplingSettings

SEQUENCES_PER_ENGINE = 256
"""Samples an engine works on at once, unless the layout says otherwise."""
SPARE_FRACTION = 0.25
"""Samples that wait in an engine, as a share of its slots: they fill those that free up before we hear of it."""


@dataclass(eq=False)
class Ticket:
    """What ``Rollouts.submit`` gives and ``Rollouts.collect`` takes.

    Attributes:
        groups: The samples of each prompt, as far as they are there.
        on_answer: See ``Rollouts.submit``.
        left: Prompts without samples.
        failure: Why there will be no more.
    """

    groups: list[list[Completion]] = field(repr=False)
    on_answer: OnAnswer | None
    left: int
    failure: RoleError | None = None


@dataclass(eq=False)
class PendingPrompt:
    """One prompt of a ticket on its way: ``place`` is its number there."""

    ticket: Ticket
    place: int
    request: Request

    @property
    def samples(self) -> int:
        """Samples that are drawn for it: what it takes of an engine's slots."""
        return self.request.sampling.samples_per_prompt


@dataclass
class QueueDepth:
    """Prompts that wait, of ``maxsize`` at most."""

    maxsize: int
    read: Callable[[], int]

    @property
    def current(self) -> int:
        """Prompts that wait at this moment, for the status endpoint."""
        return self.read()


@dataclass
class Cache:
    """What engines with a KV cache that can be full tell of a step.

    Attributes:
        share: Largest share that was in use.
        ran_s: Seconds that samples were worked on, added up over samples.
        waited_s: Seconds that they waited in an engine.
        span_s: Seconds that engines worked.
    """

    share: float = 0.0
    ran_s: float = 0.0
    waited_s: float = 0.0
    span_s: float = 0.0

    def add(self, streamed: Streamed) -> None:
        """Add what came of one call."""
        if streamed.cache_share and streamed.span_s:
            self.share = max(self.share, streamed.cache_share)
            self.ran_s += streamed.busy_slot_s
            self.waited_s += streamed.waited_s
            self.span_s += streamed.span_s


class Rollouts:
    """Feeds prompts to the engines and collects their samples.

    A sample's seed comes from its step, prompt and number, so it does not matter which engine draws it, nor beside what
    else: a step that is repeated after a resume draws the same, where its weights are the same. What an engine that
    dies had under way goes to the others.

    Args:
        engines: The engines.
        prompts_per_step: Most prompts of one ticket.
        deadline_s: Most seconds that an engine may go without an answer.
        ahead: Most tickets that wait behind the one that is collected.
        slots: Samples that an engine works on at once.
        spare: Samples that may wait in an engine; 0 where it takes nothing in before it is done with all it has.

    Attributes:
        dispatch: Hands the prompts out.
        prompts: How many wait for an engine.
        results: How many were answered and wait to be collected.
    """

    def __init__(
        self,
        engines: Sequence[Role],
        prompts_per_step: int,
        deadline_s: float,
        ahead: int = 0,
        slots: int = SEQUENCES_PER_ENGINE,
        spare: int = 0,
    ) -> None:
        room = (ahead + 1) * prompts_per_step
        self.dispatch: Dispatch[PendingPrompt] = Dispatch(len(engines), slots, spare)
        self.prompts = QueueDepth(room, lambda: self.dispatch.waiting)
        self.results = QueueDepth(room, lambda: self._answered)
        self._deadline_s, self._slots = deadline_s, slots
        self._keys, self._changed, self._answered = itertools.count(), threading.Condition(), 0
        self._busy_slot_s = self._span_s = 0.0
        self._cache, self._preempted = Cache(), 0
        self._speeds = [(0, 0.0) for _ in engines]
        for number, engine in enumerate(engines):
            threading.Thread(target=self._feed, args=(number, engine), name=f"feed {engine.name}", daemon=True).start()

    def submit(
        self,
        prompts: Sequence[EnginePrompt],
        sampling: SamplingSettings,
        on_answer: OnAnswer | None = None,
        *,
        drawn: int = 0,
        first: bool = False,
    ) -> Ticket:
        """Have every prompt sampled in its turn.

        Args:
            prompts: Each prompt, as engines take it.
            sampling: How; its seed is the step's.
            on_answer: Called by a feeder as soon as prompts were answered, with the number of the first, how many, and
                their completions.
            drawn: Prompts that the step has drawn before.
            first: Before all that wait.
        """
        seeds = (derive_seed(sampling.seed, drawn + place) for place in range(len(prompts)))
        each = [(prompt, replace(sampling, seed=seed)) for prompt, seed in zip(prompts, seeds, strict=True)]
        return self.submit_each(each, on_answer, first=first)

    def submit_each(
        self,
        asked: Sequence[tuple[EnginePrompt, SamplingSettings]],
        on_answer: OnAnswer | None = None,
        *,
        first: bool = False,
    ) -> Ticket:
        """As ``submit``, each prompt with settings of its own, in which the seed is the prompt's."""
        ticket = Ticket([[] for _ in asked], on_answer, len(asked))
        items = [
            PendingPrompt(ticket, place, Request(next(self._keys), prompt, sampling))
            for place, (prompt, sampling) in enumerate(asked)
        ]
        self.dispatch.put(items, first=first)
        return ticket

    def collect(self, ticket: Ticket, check: Callable[[], None]) -> list[list[Completion]]:
        """The samples of each prompt of ``ticket``, when all are there.

        Args:
            ticket: What was submitted.
            check: Called every ``POLL_S`` of the wait; what it raises ends it.

        Raises:
            RoleError: An engine failed or did not answer in time. That one died is reported to the dispatch instead.
        """
        if self.dispatch.failures:
            check()
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: ticket.failure or not ticket.left, POLL_S):
                    break
            check()
        if ticket.failure is not None:
            raise ticket.failure
        with self._changed:
            self._answered -= len(ticket.groups)
        return ticket.groups

    def generate(
        self, prompts: Sequence[EnginePrompt], sampling: SamplingSettings, check: Callable[[], None], drawn: int = 0
    ) -> list[list[Completion]]:
        """Sample every prompt now, before what was submitted for steps to come; arguments and errors as above."""
        return self.collect(self.submit(prompts, sampling, drawn=drawn, first=True), check)

    def take_occupancy(self) -> float:
        """Share of the engines' slots that had a sample, in the time that engines had any since the last call."""
        with self._changed:
            busy, span, self._busy_slot_s, self._span_s = self._busy_slot_s, self._span_s, 0.0, 0.0
        return busy / (span * self._slots) if span else 0.0

    def take_slowest(self) -> dict[str, float]:
        """The engine that took longest for a token since the last call, and its speed as a share of the others'.

        Speeds are those of one sample, so that an engine with fewer of them is not taken for a slow one. Empty where
        fewer than two engines answered.
        """
        with self._changed:
            taken, self._speeds = self._speeds, [(0, 0.0) for _ in self._speeds]
        speeds = {number: tokens / busy_slot_s for number, (tokens, busy_slot_s) in enumerate(taken) if busy_slot_s > 0}
        if len(speeds) < 2:
            return {}
        slowest = min(speeds, key=speeds.__getitem__)
        usual = statistics.median(speed for number, speed in speeds.items() if number != slowest)
        return {"slowest_engine": float(slowest), "slowest_engine_speed": speeds[slowest] / usual} if usual else {}

    def take_cache(self) -> dict[str, float]:
        """How full the engines' KV caches were since the last call, and what that costs; empty where none can be full.

        Requests that run and wait are those of one engine while it works, so that their ratio is that of all.
        """
        with self._changed:
            taken, self._cache = self._cache, Cache()
        if not taken.share:
            return {}
        return {
            "kv_cache_usage": taken.share,
            "engine_running": taken.ran_s / taken.span_s,
            "engine_waiting": taken.waited_s / taken.span_s,
            "preemptions_total": float(self._preempted),
        }

    def close(self) -> None:
        """End the feeders that wait for work."""
        self.dispatch.close()

    def _feed(self, number: int, engine: Role) -> None:
        under_way: dict[int, PendingPrompt] = {}
        try:
            while True:
                new, low = self.dispatch.take(number)
                under_way |= {asked.request.key: asked for asked in new}
                actor = engine.actor
                try:
                    call = (engine, actor.stream.remote([asked.request for asked in new], low))
                    streamed: Streamed = call_all([call], self._deadline_s, "generating")[0]
                    self._deliver(number, under_way, streamed)
                except RoleDiedError as error:
                    # the death is that of the process that was asked
                    error.actor = actor  # by now, the role may have another one
                    under_way.clear()
                    self.dispatch.await_repair(number, error)
                except RoleError as error:
                    self._fail(number, under_way, error)
                except Exception as error:  # noqa: BLE001 - the outermost edge of a thread: whoever collects is told
                    words = f"{engine.title}: its samples could not be taken: {type(error).__name__}: {error}"
                    self._fail(number, under_way, RoleError(words))
        except DispatchClosedError:
            return

    def _deliver(self, number: int, under_way: dict[int, PendingPrompt], streamed: Streamed) -> None:
        """Hand over the answers of one call, neighbouring prompts of a ticket together."""
        answered = [(under_way[key], samples) for key, samples in streamed.answers.items()]
        answered.sort(key=lambda pair: (id(pair[0].ticket), pair[0].place))
        # place less number is the same all along a run of neighbours
        for _, run in itertools.groupby(
            enumerate(answered), key=lambda item: (id(item[1][0].ticket), item[1][0].place - item[0])
        ):
            part = [pair for _, pair in run]
            ticket, start = part[0][0].ticket, part[0][0].place
            if ticket.on_answer is not None:
                told = [replace(one, prompt_index=index) for index, (_, group) in enumerate(part) for one in group]
                ticket.on_answer(start, len(part), told)
        with self._changed:
            for asked, samples in answered:
                asked.ticket.groups[asked.place] = [replace(one, prompt_index=asked.place) for one in samples]
                asked.ticket.left -= 1
            self._answered += len(answered)
            self._busy_slot_s += streamed.busy_slot_s
            self._span_s += streamed.span_s
            self._cache.add(streamed)
            self._preempted += streamed.preempted
            tokens, busy_slot_s = self._speeds[number]
            tokens += sum(len(one.token_ids) for _, samples in answered for one in samples)
            self._speeds[number] = tokens, busy_slot_s + streamed.busy_slot_s
            self._changed.notify_all()
        for asked, _ in answered:
            del under_way[asked.request.key]
        self.dispatch.done(number, [asked for asked, _ in answered], streamed.left)

    def _fail(self, number: int, under_way: dict[int, PendingPrompt], error: RoleError) -> None:
        with self._changed:
            for asked in under_way.values():
                asked.ticket.failure = error
            self._changed.notify_all()
        self.dispatch.done(number, list(under_way.values()))
        under_way.clear()


def prompts_per_chunk(
    prompts_per_step: int, samples_per_prompt: int, num_engines: int, sequences: int = SEQUENCES_PER_ENGINE
) -> int:
    """Prompts of one call: an equal share for each engine, but no more than it can work on at once."""
    return max(1, min(-(-prompts_per_step // num_engines), sequences // samples_per_prompt))


def sequences_per_engine(layout: Layout) -> int:
    """Samples that an engine works on at once."""
    return layout.roles.rollout.max_concurrency or SEQUENCES_PER_ENGINE


def spare_samples(layout: Layout) -> int:
    """Samples that may wait in an engine: vLLM fills slots that free up, the other engine ends a batch first."""
    return spare_of(sequences_per_engine(layout), layout.roles.rollout.engine, layout.train.samples_per_prompt)


def spare_of(slots: int, engine: str, samples_per_prompt: int = 1) -> int:
    """The same of engines of ``slots`` slots, of a kind as layouts say it."""
    return 0 if engine == "hf" else max(samples_per_prompt, int(SPARE_FRACTION * slots))
