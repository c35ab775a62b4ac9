"""Which prompts each step gets, and how old its samples are: engines have them up to ``train.async_steps`` ahead."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from trainers.data.prompts import Prompt
from trainers.metrics import TrainingError
from trainers.prefetch import OnAnswer
from trainers.roles.completions import Completion
from trainers.roles.sampling import SamplingSettings


@dataclass(frozen=True)
class _Submitted:
    """Prompts under way: those of ``step``, the first of which is number ``start`` of the task."""

    step: int
    start: int
    prompts: list[Prompt]
    ticket: Any


class Lookahead:
    """Draws prompts in the order of the data: first those of each step, then those that a step draws besides.

    A step is submitted when the engines have the weights of the step ``async_steps`` + 1 before it, so its samples are
    never more than ``async_steps`` optimizer steps behind the weights they train. What was drawn depends on the numbers
    of the steps only, not on how fast anyone is, and is remembered in the checkpoint.

    Args:
        task: Where prompts come from.
        rollouts: What samples them.
        sampling: Settings of a step, by its number.
        prompts_per_step: Prompts of each step.
        async_steps: Most steps to be ahead.
        last_step: The last step of the run.
        reading: Makes what is around a wait for prompts.
        expect: From the prompts of a step to what is called with answers to them as they come.
        as_asked: From a prompt to what ``rollouts`` take.
    """

    def __init__(
        self,
        task: Any,
        rollouts: Any,
        sampling: Callable[[int], SamplingSettings],
        prompts_per_step: int,
        async_steps: int,
        last_step: int,
        reading: Callable[[], AbstractContextManager[None]] = nullcontext,
        expect: Callable[[Sequence[Prompt]], OnAnswer] | None = None,
        as_asked: Callable[[Prompt], Any] = attrgetter("request"),
    ) -> None:
        self._as_asked = as_asked
        self._task, self._rollouts, self._sampling, self._expect = task, rollouts, sampling, expect
        self._count, self._async_steps, self._last_step = prompts_per_step, async_steps, last_step
        self._reading = reading
        self._begun: deque[_Submitted] = deque()
        self._starts: deque[int] = deque()
        self._next_prompt = 0
        self._prepared: tuple[int, list[Prompt]] = (-1, [])

    def resume(self, cursor: int, starts: Sequence[int], prompts_per_step: int = 0) -> None:
        """Go on where a checkpoint says.

        Args:
            cursor: Prompts that steps have used up.
            starts: The first prompt of each of the next steps that had theirs already.
            prompts_per_step: How many each of these had; 0: as many as steps have now.
        """
        if starts and prompts_per_step not in (0, self._count):
            # with another number of prompts from the same places, steps would share some and leave others out
            cursor, starts = min(starts), ()
        self._begun.clear()
        self._starts = deque(starts)
        self._next_prompt = cursor + len(starts) * self._count

    @property
    def starts(self) -> tuple[int, ...]:
        """The first prompt of each step that has its prompts but has not been collected."""
        return (*(submitted.start for submitted in self._begun), *self._starts)

    def prepare(self, step: int) -> None:
        """Read the prompts of the step that is submitted next, if one is, so that they are there then.

        Args:
            step: The step that was collected last.
        """
        if (self._begun[-1].step if self._begun else step) >= self._last_step:
            return
        start = self._starts[0] if self._starts else self._next_prompt
        if self._prepared[0] != start:
            self._prepared = (start, self._task.prompts(start, self._count))

    def collect(self, step: int, check: Callable[[], None]) -> tuple[list[Prompt], list[list[Completion]]]:
        """Prompts and samples of ``step``, the next one; steps that may be ahead are submitted first.

        Args:
            step: Its number.
            check: Called while waiting; what it raises ends the wait.
        """
        following = self._begun[-1].step + 1 if self._begun else step
        for number in range(following, max(step, min(step + self._async_steps, self._last_step)) + 1):
            self._submit(number)
        begun = self._begun.popleft()
        return begun.prompts, self._rollouts.collect(begun.ticket, check)

    def begin(self, step: int) -> None:
        """Hand the prompts of ``step``, the next one, to engines that have its weights already; ``collect`` waits."""
        if step <= self._last_step and not self._begun:
            self._submit(step)

    def skip(self) -> list[Prompt]:
        """Prompts of the next step, which does not have them sampled; only where no step is ahead.

        Raises:
            RuntimeError: The prompts are with the engines already.
        """
        if self._begun or self._starts:
            raise RuntimeError("the prompts of the next step are with the engines already")
        return self._read(self._take(self._count), self._count)

    def draw(
        self, step: int, drawn: int, count: int, check: Callable[[], None]
    ) -> tuple[list[Prompt], list[list[Completion]]]:
        """``count`` further prompts for ``step``, which drew ``drawn`` before, from behind all others'; sampled now."""
        prompts = self._read(self._take(count), count)
        asked = [self._as_asked(prompt) for prompt in prompts]
        return prompts, self._rollouts.generate(asked, self._sampling(step), check, drawn)

    def _submit(self, step: int) -> None:
        # steps that were ahead when a checkpoint was written sample their prompts again, not the next ones
        start = self._starts.popleft() if self._starts else self._take(self._count)
        prepared, prompts = self._prepared
        if prepared != start:
            prompts = self._read(start, self._count)
        on_answer = None if self._expect is None else self._expect(prompts)
        asked = [self._as_asked(prompt) for prompt in prompts]
        ticket = self._rollouts.submit(asked, self._sampling(step), on_answer)
        self._begun.append(_Submitted(step, start, prompts, ticket))

    def _read(self, start: int, count: int) -> list[Prompt]:
        with self._reading():
            found: list[Prompt] = self._task.prompts(start, count)
        return found

    def _take(self, count: int) -> int:
        start = self._next_prompt
        self._next_prompt += count
        return start


class StalenessCounter:
    """Counts the samples of a step by staleness: the learner's weight version less the oldest that sampled them.

    Args:
        bound: Most that a sample may have: ``train.async_steps``.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._counts: Counter[int] = Counter()
        self._mixed = 0

    def note(self, groups: Sequence[Sequence[Completion]], version: int) -> list[list[Completion]]:
        """Count samples that come to be trained on at weight ``version``; returns them with their staleness.

        Raises:
            TrainingError: A sample is older than the bound, or of a version that is still to come.
        """
        aged = [[_aged(one, version) for one in group] for group in groups]
        parts = [part for group in aged for one in group for part in one.sequences]
        for one in (part for part in parts if not 0 <= part.staleness <= self._bound):
            raise TrainingError(
                f"a sample of weight version {one.weight_version} came to be trained on at version {version}, and "
                f"async_steps={self._bound} is the bound: the engine does not run the learner's weights; see events of "
                "weight transfers"
            )
        self._counts.update(part.staleness for part in parts)
        self._mixed += sum(part.newest_version > part.weight_version for part in parts)
        return aged

    def take(self) -> tuple[dict[int, int], float]:
        """Since the last call: samples by staleness, and the fraction that more than one version sampled."""
        counts, mixed = dict(sorted(self._counts.items())), self._mixed
        self._counts, self._mixed = Counter(), 0
        return counts, mixed / max(1, sum(counts.values()))


def _aged(one: Completion, version: int) -> Completion:
    """``one`` with its staleness; most are fresh, and have it already."""
    staleness = version - one.weight_version
    if one.staleness == staleness and not one.earlier:
        return one
    return replace(one, staleness=staleness, earlier=tuple(_aged(part, version) for part in one.earlier))


def staleness_metrics(counts: Mapping[int, int]) -> dict[str, float]:
    """Mean and largest staleness of ``counts``; 0 where there are none."""
    samples = sum(counts.values())
    return {
        "staleness_mean": sum(age * count for age, count in counts.items()) / max(1, samples),
        "staleness_max": float(max(counts, default=0)),
    }
