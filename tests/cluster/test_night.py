"""Hands-off mode against random faults, in short: `make night` is the long form of it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from night import FOR_A_PERSON, RECOVERABLE, Here, Night, report, spend

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_faults_on_this_machine_end_without_a_person_or_with_one_told(tmp_path: Path) -> None:
    night = Night(Here(tmp_path), seed=1)
    faults = [*RECOVERABLE * 3, *FOR_A_PERSON]
    random.Random(7).shuffle(faults)
    spend(night, faults)
    print("\n".join(report([night])))
    assert night.wrong == []
    assert len(night.outcomes) == len(faults) >= 20
    assert sum(one.submitted_s is not None for one in night.outcomes) == 3 * len(RECOVERABLE)
    assert max(one.submitted_s or 0.0 for one in night.outcomes) < 120
