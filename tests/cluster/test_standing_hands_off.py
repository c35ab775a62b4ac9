"""Hands-off mode on a Ray cluster that somebody else has started: the same faults and guard rails as elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from night import Here, Night, spend
from night_faults import FOR_A_PERSON
from night_report import report
from test_standing_ray import head

if TYPE_CHECKING:
    from pathlib import Path

    from rltui.onnode.ray_head import RayHead

__all__ = ["head"]  # a fixture
pytestmark = [pytest.mark.trainers, pytest.mark.slow]


class OnRay(Here):
    """A standing Ray, by its Jobs API."""

    def __init__(self, folder: Path, address: str) -> None:
        super().__init__(folder)
        profile = f"{{scheduler: ray, ray_address: '{address}', python: {sys.executable}, run_root: {folder}/runs"
        scaled = f"env: {{RLTUI_DEADLINE_SCALE: '{self.scale}'}}}}"
        (folder / "config/clusters.yaml").write_text(f"standing: {profile}, {scaled}\n")

    def launch(self) -> str:
        words = ("--nodes", "1", "--gpus-per-node", "0", "--folder", str(self.home), "--cluster", "standing", "--auto")
        return self.rltui("launch", "--script", "night.sh", *words).split()[-1]


def test_faults_on_a_standing_ray_end_without_a_person_or_with_one_told(head: RayHead, tmp_path: Path) -> None:
    night = Night(OnRay(tmp_path, head.dashboard), seed=5)
    faults = ["trainer killed", "supervisor killed", "collective timed out", "module missing", "trainer stopped"]
    spend(night, faults)
    print("\n".join(report(night.outcomes, night.wrong, FOR_A_PERSON)))
    assert night.wrong == []
    alone = {one.fault for one in night.outcomes if one.submitted_s is not None}
    assert alone == {fault for fault in faults if fault not in FOR_A_PERSON}
