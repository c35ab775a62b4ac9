"""Work on answers as they come, while engines answer other prompts and the learners train on a step before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from trainers.data.prompts import Prompt
from trainers.roles.completions import Completion, grouped

OnAnswer: TypeAlias = "Callable[[int, int, Sequence[Completion]], None]"
"""Takes the number of the first prompt that was answered, how many were, and their completions."""

Found = TypeVar("Found")

CALLS_AT_ONCE = 8
"""Answers of so many calls of engines are worked on at the same time."""


@dataclass
class _Expected(Generic[Found]):
    """Prompts whose answers are under way; ``parts`` by the number of the first prompt they are of."""

    prompts: Sequence[Prompt]
    parts: dict[int, Future[Found]] = field(default_factory=dict)


class Prefetch(Generic[Found]):
    """Works on answers in threads of its own from the moment that an engine gives them.

    A reward that takes seconds (a program's tests, a server) or a teacher's scores would otherwise hold up the learners
    in each step, even where samples are made steps ahead of them.

    Args:
        work: What is done with some prompts of a step and the answers to each; called by several threads at once.
    """

    def __init__(self, work: Callable[[Sequence[Prompt], Sequence[Sequence[Completion]]], Found]) -> None:
        self._work = work
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="early")
        self._expected: dict[int, _Expected[Found]] = {}

    def expect(self, prompts: Sequence[Prompt]) -> OnAnswer:
        """What is to be called with answers to ``prompts``: the number of the first, how many, their completions."""
        expected: _Expected[Found] = _Expected(prompts)
        # by identity, which nothing else can have while _Expected holds the list
        self._expected[id(prompts)] = expected

        def begin(first: int, count: int, completions: Sequence[Completion]) -> None:
            part = prompts[first : first + count]
            expected.parts[first] = self._begin(part, grouped(completions, count))

        return begin

    def _begin(self, prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]]) -> Future[Found]:
        try:
            return self._threads.submit(self._work, prompts, groups)
        except RuntimeError as error:  # closed, when nobody will ask; or this process may start no further thread
            failed: Future[Found] = Future()
            failed.set_exception(error)
            return failed

    def take(self, prompts: Sequence[Prompt]) -> list[Found] | None:
        """What was found, in the order of ``prompts``, a part for each call; None unless these very ones were expected.

        All answers must be there, and are taken once. What the work raised is raised here.
        """
        expected = self._expected.pop(id(prompts), None)
        return None if expected is None else [part.result() for _, part in sorted(expected.parts.items())]

    def close(self) -> None:
        """Begin nothing more; what is under way comes to its end, and nobody asks for it."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def expect_all(works: Iterable[Prefetch[Any]], prompts: Sequence[Prompt]) -> OnAnswer:
    """What is to be called with answers to ``prompts`` where several things are to be begun on each."""
    begin = [work.expect(prompts) for work in works]

    def begin_all(first: int, count: int, completions: Sequence[Completion]) -> None:
        for each in begin:
            each(first, count, completions)

    return begin_all
