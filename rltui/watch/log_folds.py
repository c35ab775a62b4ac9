"""Lines that say the same put together: progress bars, a message repeated, one message of many ranks. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

NEAR = 128
"""Lines back to which a message of another rank is still the same one: ranks print one after the other."""

_LABEL = re.compile(r"\A\[[^\]\s]+\] (?=\S)")
_PROCESS = re.compile(r"\([^()]*\bpid=\d+[^()]*\)|(?i:\b(?:local_)?rank)[ =:]?\d+")
_TIME = re.compile(
    r"(?:\d{4}-)?(?:\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|\b[IWEF]\d{4} (?=\d\d:)"
)
_HEAD = 96
"""Characters at a line's start in which labels, processes and times are looked for."""

_PROGRESS = re.compile(r"\d%\|| \d+/\d+ \[|\d ?(?:it|s/it|B)/s\b|[━█▏▎▍▌▋▊▉╸]{3}")
_MOVING = re.compile(r"[\W\d_]+")


class Fold(Struct, frozen=True):
    """Lines that are shown as one.

    Attributes:
        text: The line that is shown: of a progress bar the last, else the first.
        first: Its place among all lines.
        count: How many lines it stands for.
        sources: From how many ranks or processes they came.
        sources_are: Which of both.
    """

    text: str
    first: int
    count: int = 1
    sources: int = 1
    sources_are: str = "processes"

    @property
    def shown(self) -> str:
        """The line with what was folded into it."""
        if self.count == 1:
            return self.text
        if self.sources == 1:
            return f"{self.text}  [×{self.count}]"
        more = f", {self.count} lines" if self.count > self.sources else ""
        return f"{self.text}  [×{self.sources} {self.sources_are}{more}]"


class _Open:
    """A fold that may still grow."""

    def __init__(self, number: int, text: str, source: str) -> None:
        self.number, self.text, self.count, self.sources = number, text, 1, {source}

    def closed(self) -> Fold:
        ranks = all("rank" in source.lower() for source in self.sources)
        return Fold(self.text, self.number, self.count, len(self.sources), "ranks" if ranks else "processes")


def fold(lines: Sequence[str]) -> list[Fold]:
    """Put together what says the same but for times, and in progress bars for numbers.

    A line joins one that says the same right before it, or within ``NEAR`` lines if that one comes from other
    processes only. A line stays where the first of its kind is.
    """
    folds: list[_Open] = []
    by_key: dict[str, int] = {}
    last: dict[str, str] = {}
    for number, text in enumerate(lines):
        key, source, is_progress = _key(text)
        place = by_key.get(key)
        one = folds[place] if place is not None and len(folds) - place <= NEAR else None
        if one is not None and key.strip() and (last.get(source) == key or source not in one.sources):
            one.count += 1
            one.sources.add(source)
            if is_progress:
                one.text = text
        else:
            by_key[key] = len(folds)
            folds.append(_Open(number, text, source))
        last[source] = key
    return [one.closed() for one in folds]


def _key(text: str) -> tuple[str, str, bool]:
    """What a line says without who says it and when; who does; and whether it is a progress bar."""
    head, rest = text[:_HEAD], text[_HEAD:]
    source = [match[0] for match in (_LABEL.match(head),) if match]
    head = _LABEL.sub("", head)
    source += _PROCESS.findall(head)
    words = _TIME.sub("", _PROCESS.sub("", head)) + rest
    is_progress = _PROGRESS.search(text) is not None
    return (_MOVING.sub(" ", words) if is_progress else words), " ".join(source), is_progress
