"""Estimates beside the peaks of earlier runs: which runs count, and how far off an estimate is then taken to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rltui.cli.main import main
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.memory import estimate_layout
from rltui.memory.measured import corrections, lines, peaks_of, same_family
from rltui.paths import run_root

PRESET = "open-instruct/grpo-7b-1x4-even"


def document(**allocated: float) -> dict[str, Any]:
    """A ``memory.json`` with two learners, of which the second held less; torch kept much more than it needed."""
    sizes = {name.replace("_", " "): size for name, size in allocated.items()}
    moments = {name: {"allocated_gib": size, "reserved_gib": 70.0} for name, size in sizes.items()}
    less = {name: {**peak, "allocated_gib": peak["allocated_gib"] / 2} for name, peak in moments.items()}
    roles = [{"role": f"learner {i}", "kind": "learner", "moments": each} for i, each in enumerate((moments, less))]
    estimate = {"roles": {"learner": {"backward": {"total_gib": 41.5, "torch_gib": 40.0}}}, "notes": []}
    return {"schema": 1, "roles": roles, "estimate": estimate}


def attempt(root: Path, run: str, layout: str, memory: str, *, over: bool = True) -> None:
    folder = root / run / "attempts" / "01"
    folder.mkdir(parents=True)
    (folder / "layout.yaml").write_text(layout)
    (folder / "memory.json").write_text(memory)
    if over:
        (folder / "end.json").write_text("{}")


@pytest.fixture(autouse=True)
def empty_run_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLTUI_RUN_ROOT", str(tmp_path))


def test_torchs_part_is_corrected_by_the_furthest_run() -> None:
    estimate = estimate_layout(load_layout(resolve(PRESET)).layout)
    peaks = [peak for run, size in (("a", 44.0), ("b", 50.0)) for peak in peaks_of(run, document(backward=size))]
    (found,) = corrections(estimate, peaks)
    backward = next(moment for role in estimate.roles for moment in role.moments if moment.moment == "backward")
    assert (found.measured.run, found.runs) == ("b", 2)
    assert found.corrected_gib == pytest.approx(found.estimate_gib + 0.25 * backward.own_gib)
    assert "b, the furthest of 2 runs held 50.0 GiB where 40.0 were estimated (+25%)" in next(lines([found]))


def test_what_was_not_estimated_or_ran_on_no_card_corrects_nothing() -> None:
    assert not list(peaks_of("a", document(saving=10.0)))
    assert not list(peaks_of("a", document(backward=0.0)))


@pytest.mark.parametrize(
    ("override", "same"),
    [
        ("lengths.response=1024", True),
        ("roles.learner.micro_batch=2", True),
        ("roles.learner.zero_stage=2", False),
        ("roles.learner.gradient_checkpointing=false", False),
        ("hardware.gpu=H200-SXM-141GB", False),
    ],
)
def test_family_is_what_memory_is_made_of(override: str, same: bool) -> None:
    one, other = load_layout(resolve(PRESET)).layout, load_layout(resolve(PRESET), [override]).layout
    assert one != other
    assert same_family(one, other) is same


def test_verb_reads_finished_runs_of_the_family_and_says_which(capsys: pytest.CaptureFixture[str]) -> None:
    root, text = run_root(), resolve(PRESET).read_text()
    memory = json.dumps(document(backward=44.0))
    attempt(root, "mine-001", text, memory)
    attempt(root, "other-001", resolve("local/grpo-tiny").read_text(), memory)
    attempt(root, "running-001", text, memory, over=False)
    attempt(root, "cut-001", text, memory[:100])
    attempt(root, "older-001", "layout: 0", memory)
    main(["mem", PRESET, "--measured", "--json"])
    (found,) = json.loads(capsys.readouterr().out)["measured"]
    assert (found["role"], found["measured"]["run"], found["runs"]) == ("learner", "mine-001", 1)


def test_check_says_what_was_measured_and_warns_where_that_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    text = resolve(PRESET).read_text()
    attempt(run_root(), "mine-001", text, json.dumps(document(backward=44.0)))
    main(["check", PRESET, "--cluster", "local"])
    printed = capsys.readouterr().out
    assert (
        "· MEASURED roles.learner: measured 44.0 GiB in run mine-001, estimate 40.0 (backward); as far off" in printed
    )
    attempt(run_root(), "mine-002", text, json.dumps(document(backward=400.0)))
    main(["check", PRESET, "--cluster", "local"])
    assert "▲ MEASURED roles.learner: measured 400.0 GiB in run mine-002" in capsys.readouterr().out
    main(["check", PRESET])
    assert "MEASURED" not in capsys.readouterr().out


def test_without_such_runs_the_verb_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    main(["mem", PRESET, "--measured"])
    printed = capsys.readouterr()
    assert "No run of this family on local" in printed.out + printed.err
    assert "measured" not in printed.out
