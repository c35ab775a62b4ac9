"""docs/diagnoses.md shows what slow.py measures, and the series behind it are what they claim to be."""

from __future__ import annotations

from pathlib import Path

import slow
import slow_series as made

PAGE = Path(__file__).parents[2] / "docs" / "diagnoses.md"


def test_the_confusion_table_is_up_to_date() -> None:
    """``python tests/truth/slow.py`` prints the table; it belongs into ``LIVE`` of ``rltui/diagnose/pages.py``."""
    assert "\n".join(slow.confusion()) in PAGE.read_text(encoding="utf-8")


def test_there_are_cases_enough_of_both_kinds() -> None:
    found = slow.cases()
    assert len(found) >= 30
    assert {case.is_held for case in found} == {False, True}
    assert set(slow.RUNS) == {path.stem for path in slow.RECORDED.glob("*.jsonl")}


def test_healthy_series_have_what_could_mislead() -> None:
    """Compilation in the first step, checkpoints, evaluations, and steps that are slow now and then."""
    steps = made.series(made.BALANCED, 1, 600)
    total = [step.values["time/total"] for step in steps]
    assert total[0] > 5 * total[1]
    assert sum(step.values["time/saving"] > 0 for step in steps) == 24
    assert sum(step.values["time/evaluate"] > 0 for step in steps) == 30
    assert sum(each > 1.8 * total[1] for each in total[1:]) >= 1


def test_other_systems_series_have_their_names_only() -> None:
    values = made.series(made.TURNS, 1, 30)[-1].values
    assert "time/generate" in values
    assert not {"time/engine_idle", "engine_occupancy", "weight_version"} & set(values)
