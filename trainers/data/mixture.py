"""Several training sets as one endless list of prompts, mixed by weight."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rltui.layout.settings import MIXTURE_BLOCK

if TYPE_CHECKING:
    from trainers.data.prompts import Prompt, Task


class Mixture:
    """Prompts of several tasks in a random order, in which each has its share of every ``MIXTURE_BLOCK`` prompts.

    Which task prompt number i comes from, and its number there, depend on the seed, the shares and i alone. So a
    resumed run draws the same, and each task keeps its own epochs.

    Args:
        tasks: By name.
        counts: Prompts of each among ``MIXTURE_BLOCK``, in the same order; they add up to that.
        seed: Of the order.

    Raises:
        ValueError: A task has no prompt among so many.
    """

    def __init__(self, tasks: Mapping[str, Task], counts: Sequence[int], seed: int) -> None:
        self._tasks, self._seed = tasks, seed
        self._counts = dict(zip(tasks, counts, strict=True))
        for name, count in self._counts.items():
            if not count:
                raise ValueError(f"the weight of {name} in data.mixture is less than one prompt in {MIXTURE_BLOCK}")
        self._block, self._places = -1, list[tuple[str, int]]()

    @property
    def left_out(self) -> int:
        """Prompts left out so far, of all tasks."""
        return sum(task.left_out for task in self._tasks.values())

    @property
    def size(self) -> int | None:
        """Different prompts; None: one of the tasks has no end."""
        sizes = [task.size for task in self._tasks.values()]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def prompts(self, cursor: int, count: int) -> list[Prompt]:
        """Prompts number ``cursor`` to ``cursor + count - 1``, each with its task's name."""
        return [self._prompt(index) for index in range(cursor, cursor + count)]

    def _prompt(self, index: int) -> Prompt:
        block, place = divmod(index, MIXTURE_BLOCK)
        if block != self._block:
            self._block, self._places = block, self._shuffled(block)
        name, number = self._places[place]
        [prompt] = self._tasks[name].prompts(number, 1)
        return replace(prompt, source=name, key=prompt.key and f"{name}/{prompt.key}")

    def _shuffled(self, block: int) -> list[tuple[str, int]]:
        """Name of the task, and number of the prompt there, of each prompt of a block."""
        order = [name for name, count in self._counts.items() for _ in range(count)]
        random.Random(f"mixture/{self._seed}/{block}").shuffle(order)
        numbers = {name: itertools.count(block * count) for name, count in self._counts.items()}
        return [(name, next(numbers[name])) for name in order]
