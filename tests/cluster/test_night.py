"""Hands-off mode against random faults, in short: `make night` is the long form of it."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest
from night import Here, Night, There, spend
from night_faults import FOR_A_PERSON, FOR_A_PERSON_HERE, RECOVERABLE
from night_report import report

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_faults_on_this_machine_end_without_a_person_or_with_one_told(tmp_path: Path) -> None:
    night = Night(Here(tmp_path), seed=1)
    recoverable = [*RECOVERABLE * 2, *RECOVERABLE[:4]]
    faults = [*recoverable, *FOR_A_PERSON_HERE]
    random.Random(7).shuffle(faults)
    spend(night, faults)
    print("\n".join(report(night.outcomes, night.wrong, FOR_A_PERSON)))
    assert night.wrong == []
    assert len(night.outcomes) == len(faults) >= 20
    assert sum(one.submitted_s is not None for one in night.outcomes) == len(recoverable)
    assert night.place.told().count("fixed") == len(recoverable)
    assert night.place.told().count("needs you") == len(FOR_A_PERSON_HERE) - 1, "whoever cancels knows it"
    assert max(one.submitted_s or 0.0 for one in night.outcomes) < 120
    assert max(one.verdict_s for one in night.outcomes if one.fault != "trainer stopped") < 30, "of a death"


def test_faults_on_slurm_end_without_a_person_or_with_one_told(slurm_cluster: Lab, tmp_path: Path) -> None:
    night = Night(There(tmp_path, slurm_cluster), seed=2)
    faults = ["trainer killed", "trainer stopped", "requeued by an admin", "time limit", "collective timed out"]
    faults += ["cancelled by an admin", "node crashed", "head lost", "module missing"]
    spend(night, faults)
    print("\n".join(report(night.outcomes, night.wrong, FOR_A_PERSON)))
    assert night.wrong == []
    assert reasons(night) == {"node-lost"}, "the node that crashed is remembered, and no other is blamed"
    alone = {one.fault for one in night.outcomes if one.submitted_s is not None}
    assert alone == {fault for fault in faults if fault not in FOR_A_PERSON}


def reasons(night: Night) -> set[str]:
    """What the cluster's memory of bad nodes holds."""
    lines = (night.run.parent / ".bad-nodes.jsonl").read_text().splitlines()
    return {json.loads(line)["reason"] for line in lines}
