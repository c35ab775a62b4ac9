"""Which prompts each step gets, and handing them to the engines up to ``train.async_steps`` before it begins."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainers.data.prompts import Prompt
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

    def resume(self, cursor: int, starts: Sequence[int]) -> None:
        """Go on where a checkpoint says.

        Args:
            cursor: Prompts that steps have used up.
            starts: The first prompt of each of the next steps that had theirs already.
        """
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
