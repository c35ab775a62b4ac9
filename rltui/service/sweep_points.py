"""Which runs a sweep is: words such as ``train.seed=1,2`` as points, and how many of these may run at once. Pure."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Sequence

from msgspec import Struct

from rltui.errors import UsageError

MOST_RUNS = 100
"""A stop for a product that somebody did not think through."""

AT_ONCE = "--at-once"

_VALUE = re.compile(r"""(?:\[[^\]]*\]|\{[^}]*\}|"[^"]*"|'[^']*'|[^,\[{"'])+""")


class Sweep(Struct, frozen=True):
    """Several values of settings, each combination of which is a run.

    Attributes:
        words: ``key=value,value``, a setting each; none: there is no sweep.
        at_once: How many may run at the same time; 0: as many as the cluster lets.
    """

    words: tuple[str, ...] = ()
    at_once: int = 0

    def __str__(self) -> str:
        """The sweep's words as one types them in a shell."""
        return shlex.join((*self.words, *self._limit))

    @property
    def arguments(self) -> tuple[str, ...]:
        """As ``rltui launch`` takes it."""
        words = (part for word in self.words for part in ("--sweep", word))
        return (*words, *self._limit)

    @property
    def _limit(self) -> tuple[str, ...]:
        return (AT_ONCE, str(self.at_once)) if self.at_once else ()

    @property
    def limit_in_words(self) -> str:
        """How many may run at once, as what follows the number of runs."""
        return f", {self.at_once} at the same time" if self.at_once else ""


NO_SWEEP = Sweep()


def read_sweep(text: str) -> Sweep:
    """The sweep that somebody types: ``train.seed=1,2 --at-once 2``.

    Raises:
        UsageError: It is none.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"The sweep cannot be read: {error}.") from error
    number = ""
    if AT_ONCE in words:
        place = words.index(AT_ONCE)
        number = "".join(words[place + 1 : place + 2])
        del words[place : place + 2]
        if not number.isdecimal() or int(number) < 1:
            raise UsageError(f"{AT_ONCE} takes how many runs may run at the same time, at least 1.")
    points_of(words)
    return Sweep(tuple(words), int(number or 0) if words else 0)


class Point(Struct, frozen=True):
    """One run of a sweep.

    Attributes:
        settings: What it has of the swept settings, ``key=value``.
        suffix: What tells its name from the others'.
    """

    settings: tuple[str, ...]
    suffix: str


def points_of(swept: Sequence[str]) -> list[Point]:
    """All combinations of ``key=value,value,…`` words; the last word's values change fastest.

    Raises:
        UsageError: A word is none, names one value twice, or there are too many combinations.
    """
    axes = [_axis(word) for word in swept]
    keys = [key for key, _ in axes]
    if len(set(keys)) < len(keys):
        raise UsageError("A key stands twice in the sweep.", "Give all its values in one word.")
    count = 1
    for _, values in axes:
        count *= len(values)
    if count > MOST_RUNS:
        raise UsageError(f"The sweep would be {count} runs; {MOST_RUNS} is the most.", "Sweep fewer values at once.")
    return [_point(keys, values) for values in itertools.product(*(values for _, values in axes))]


def _axis(word: str) -> tuple[str, list[str]]:
    key, equals, text = word.partition("=")
    parts = _VALUE.findall(text)
    values = [value.strip() for value in parts]
    is_whole = ",".join(parts) == text  # an open bracket or quote, and nothing between two commas, are no value
    if not equals or not key or len(values) < 2 or "" in values or not is_whole:
        raise UsageError(
            f"{word!r} is no sweep.", "Write key=value,value with two values or more; set a single one beside it."
        )
    if len(set(values)) < len(values):
        raise UsageError(f"{key} has a value twice.", "Change train.seed where a setting is to be run more than once.")
    return key, values


def _point(keys: Sequence[str], values: Sequence[str]) -> Point:
    told = [f"{re.split(r'[./-]', key)[-1]}-{value}" for key, value in zip(keys, values, strict=True)]
    settings = tuple(f"{key}={value}" for key, value in zip(keys, values, strict=True))
    return Point(settings, "-".join(told))
