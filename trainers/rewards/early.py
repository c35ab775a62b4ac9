"""Rewards of answers as they come, while engines answer other prompts and the learners train on the step before."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainers.roles.engine import grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from trainers.data.prompts import Prompt
    from trainers.roles.engine import Completion

    Judge = Callable[[Sequence[Prompt], Sequence[Sequence[Completion]]], list[list[float]]]
    OnAnswer = Callable[[int, int, Sequence[Completion]], None]

CALLS_AT_ONCE = 8
"""Answers of so many calls of engines are judged at the same time; rewards share their workers out by themselves."""


@dataclass
class _Expected:
    """Prompts whose answers are under way; ``parts`` are rewards by the number of the first prompt they are of."""

    prompts: Sequence[Prompt]
    parts: dict[int, Future[list[list[float]]]] = field(default_factory=dict)


class EarlyRewards:
    """Judges answers in threads of its own from the moment that an engine gives them.

    A reward that takes seconds (a program's tests, a server) would otherwise hold up the learners in each step, even
    where samples are made steps ahead of them.

    Args:
        judge: The reward of each sample of each prompt; called while others may call it, too.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="early rewards")
        self._expected: dict[int, _Expected] = {}

    def expect(self, prompts: Sequence[Prompt]) -> OnAnswer:
        """What is to be called with answers to ``prompts``: the number of the first, how many, their completions."""
        expected = self._expected[id(prompts)] = _Expected(prompts)

        def judge(first: int, count: int, completions: Sequence[Completion]) -> None:
            part = prompts[first : first + count]
            with suppress(RuntimeError):  # closed: the run ends, and nobody will ask
                expected.parts[first] = self._threads.submit(self._judge, part, grouped(completions, count))

        return judge

    def take(self, prompts: Sequence[Prompt]) -> list[list[float]] | None:
        """The rewards of all answers to ``prompts``, once; None unless it was these very prompts that were expected.

        All answers must be there. What a reward raised is raised here.
        """
        expected = self._expected.pop(id(prompts), None)
        if expected is None:
            return None
        return [rewards for _, part in sorted(expected.parts.items()) for rewards in part.result()]

    def close(self) -> None:
        """Judge no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
