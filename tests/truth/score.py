"""What one predictor (memory, plan, import, why …) is worth: the form in which each module beside this one says it.

A module of this folder measures one predictor on its cases and has one function, ``score() -> Score``. ``make truth``
prints all of them as a page, and ``test_truth.py`` fails where a figure is worse than its bound.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Figure:
    """One number of a predictor, with the bound that it may not cross.

    Attributes:
        name: what is counted, with its unit in words, such as "median error of grade A (%)".
        value: as measured now.
        bound: the worst value that is let through: what the predictor reached before, with no slack for getting worse.
        higher_is_better: True for shares that are right, False for errors.
        cases: how many cases the number stands on.
    """

    name: str
    value: float
    bound: float
    higher_is_better: bool
    cases: int

    @property
    def held(self) -> bool:
        """Whether the value is on the right side of its bound."""
        return self.value >= self.bound if self.higher_is_better else self.value <= self.bound


@dataclasses.dataclass(frozen=True)
class Score:
    """A predictor's figures, and the cases in which it is furthest off, each with the reason as far as it is known."""

    predictor: str
    figures: tuple[Figure, ...]
    worst: tuple[tuple[str, str], ...] = ()
