"""A line in its surroundings: what the checks of wordings look at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from rltui.diagnose.lines import Line, clean

MOST_LINES_AROUND = 400


class LineBudget:
    """How many lines checks may still look at around the lines they are asked about, in one source.

    A traceback is worth its while once; a million of them would take hours.
    """

    def __init__(self, lines: int) -> None:
        self.lines = lines


class Context(Struct, frozen=True):
    """A cleaned line with the raw text around it, of which only what is asked for is cleaned.

    Attributes:
        line: The line.
        raw: Part of the file around it.
        start: Where the line starts in ``raw``.
        end: Where it ends.
        budget: Shared by all contexts of the source.
        learned: Prefixes of the source's lines, beside those that all know.
    """

    line: Line
    raw: bytes
    start: int
    end: int
    budget: LineBudget
    learned: Sequence[re.Pattern[str]] = ()

    def before(self, most: int) -> Iterator[Line]:
        """Yield up to ``most`` lines before this one, nearest first."""
        end, number = self.start, self.line.number
        for _ in range(min(most, MOST_LINES_AROUND)):
            if end <= 0 or self.budget.lines <= 0:
                return
            self.budget.lines -= 1
            end -= 1
            start = self.raw.rfind(b"\n", 0, end) + 1
            number -= 1
            yield clean(self.raw[start:end], max(number, 1), self.learned)
            end = start

    def after(self, most: int) -> Iterator[Line]:
        """Yield up to ``most`` lines after this one."""
        start, number = self.raw.find(b"\n", self.end) + 1, self.line.number
        for _ in range(min(most, MOST_LINES_AROUND)):
            if start <= 0 or start >= len(self.raw) or self.budget.lines <= 0:
                return
            self.budget.lines -= 1
            end = self.raw.find(b"\n", start)
            end = len(self.raw) if end < 0 else end
            number += 1
            yield clean(self.raw[start:end], number, self.learned)
            start = end + 1

    def above(self, most: int) -> str:
        """Return the texts of up to ``most`` lines before this one, the nearest first, as one string."""
        return "\n".join(line.text for line in self.before(most))

    def around(self, before: int, after: int) -> str:
        """Return the texts of the neighbours and of the line itself, in order, as one string."""
        earlier = [line.text for line in self.before(before)]
        later = [line.text for line in self.after(after)]
        return "\n".join([*reversed(earlier), self.line.text, *later])
