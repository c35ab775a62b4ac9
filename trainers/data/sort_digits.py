"""The task ``builtin/sort-digits``: given ``352>``, answer ``235``."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "builtin/sort-digits"


@dataclass(frozen=True)
class Prompt:
    """One prompt of the task: its token ids, and the text that is the right answer."""

    token_ids: tuple[int, ...]
    answer: str


class SortDigits:
    """An endless list of prompts in which number i depends on nothing but the seed and i.

    So the data position of a checkpoint is one number, and a resumed run sees the prompts it would have seen.
    """

    def __init__(self, digits: int, seed: int, encode: Callable[[str], list[int]]) -> None:
        self._digits, self._seed, self._encode = digits, seed, encode

    def prompts(self, cursor: int, count: int) -> list[Prompt]:
        """Prompts number ``cursor`` to ``cursor + count - 1``."""
        return [self._prompt(index) for index in range(cursor, cursor + count)]

    def _prompt(self, index: int) -> Prompt:
        text = random_digits(random.Random(f"sort-digits/{self._seed}/{index}"), self._digits)
        return Prompt(tuple(self._encode(text + ">")), "".join(sorted(text)))


def random_digits(source: random.Random, count: int) -> str:
    """``count`` independent digits."""
    return "".join(source.choices("0123456789", k=count))
