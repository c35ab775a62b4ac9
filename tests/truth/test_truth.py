"""A predictor that got worse fails the build: every figure of every module here stays on its side of its bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from truth import scores

if TYPE_CHECKING:
    from score import Figure

FIGURES = [(score.predictor, figure) for score in scores() for figure in score.figures]


def test_something_is_measured() -> None:
    assert FIGURES


@pytest.mark.parametrize(("predictor", "figure"), FIGURES, ids=[f"{name}: {each.name}" for name, each in FIGURES])
def test_the_predictor_is_no_worse_than_it_was(predictor: str, figure: Figure) -> None:
    assert figure.held, f"{predictor}, {figure.name}: {figure.value:.4g} crosses {figure.bound:g}"
