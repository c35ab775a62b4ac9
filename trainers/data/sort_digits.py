"""The task ``builtin/sort-digits``: given ``352>``, answer ``235``."""

from __future__ import annotations

import random
from collections.abc import Callable

from trainers.data.prompts import Prompt

NAME = "builtin/sort-digits"


class SortDigits:
    """Prompts of independent random digits, endlessly many."""

    left_out = 0
    size = None

    def __init__(self, digits: int, seed: int, encode: Callable[[str], list[int]]) -> None:
        self._digits, self._seed, self._encode = digits, seed, encode

    def prompts(self, cursor: int, count: int) -> list[Prompt]:
        """Prompts number ``cursor`` to ``cursor + count - 1``."""
        return [self._prompt(index) for index in range(cursor, cursor + count)]

    def _prompt(self, index: int) -> Prompt:
        text = random_digits(random.Random(f"sort-digits/{self._seed}/{index}"), self._digits) + ">"
        return Prompt(tuple(self._encode(text)), "".join(sorted(text[:-1])), text)


def random_digits(source: random.Random, count: int) -> str:
    """``count`` digits, each as likely as any other, drawn from ``source``."""
    return "".join(source.choices("0123456789", k=count))
