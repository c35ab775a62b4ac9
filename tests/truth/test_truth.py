"""A predictor that got worse fails the build: every figure of every module here stays on its side of its bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from truth import predictors

if TYPE_CHECKING:
    from types import ModuleType


def test_every_predictor_is_measured() -> None:
    assert {module.__name__ for module in predictors()} >= {"import_scripts", "memory", "plan", "slow", "why"}


@pytest.mark.parametrize("predictor", predictors(), ids=lambda module: module.__name__)
def test_no_figure_is_worse_than_it_was(predictor: ModuleType) -> None:
    """Measured here, not for the names of the tests: each of several processes of pytest makes these."""
    figures = predictor.score().figures
    assert figures
    assert [f"{each.name}: {each.value:.4g} crosses {each.bound:g}" for each in figures if not each.held] == []
