"""Peaks of memory by moment: each is its own, and the file holds them beside the estimate."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import ray
from trainer_support import LAYOUT, ROOT

from rltui.layout.load import load_layout
from rltui.memory import estimate_layout
from trainers.memory_log import MemoryLog, estimate_moments
from trainers.roles import meter
from trainers.roles.meter import Meter, measured

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainers

LARGE_BYTES = 96 * 2**20


def test_a_moment_has_the_peak_of_its_own_time() -> None:
    found = Meter()
    with found.moment("large"):
        size = len(b"x" * LARGE_BYTES)
    with found.moment("small"):
        pass
    peaks = found.peaks()
    assert peaks["large"]["resident_gib"] - peaks["small"]["resident_gib"] > 0.8 * size / 2**30
    with found.moment("small"):
        size = len(b"x" * LARGE_BYTES)
    assert found.peaks()["small"]["resident_gib"] == pytest.approx(peaks["large"]["resident_gib"], rel=0.1)


def test_a_failed_moment_is_closed() -> None:
    found = Meter()
    with pytest.raises(ValueError, match="no"), found.moment("load"):
        raise ValueError("no")
    with found.moment("generate"):
        pass
    assert set(found.peaks()) == {"load", "generate"}
    assert not found._open


def test_methods_are_measured_by_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "METER", Meter())

    class Role:
        @measured("load")
        def load(self, seconds: float) -> float:
            """Load."""
            return seconds

    assert Role().load(2.0) == 2.0
    assert Role.load.__doc__ == "Load."
    report = meter.memory_report()
    assert set(report["moments"]) == {"load"}
    assert 0 < report["now"]["resident_gib"] <= report["moments"]["load"]["resident_gib"] * 1.5


def test_the_estimate_names_the_same_kinds_and_moments_and_leaves_out_the_context() -> None:
    found = estimate_moments(load_layout(ROOT / "layouts" / "opd" / "text-8.yaml").layout)
    assert {"learner", "engine", "teacher"} <= set(found["roles"])
    learner = found["roles"]["learner"]
    assert set(learner) == {"load", "log-probs", "backward", "optimizer step", "weight sync"}
    assert all(moment["torch_gib"] < moment["total_gib"] for moment in learner.values())
    shared = load_layout(ROOT / "layouts" / "verl-ppo" / "ppo-1x4-standard.yaml").layout
    moments = {role.role: role.moments for role in estimate_layout(shared).roles}
    beside = [name for moment in moments["learner"] for name in moment.parts_gib if "beside" in name]
    assert beside  # colocated roles are in the card's sum, but in another process
    engine = estimate_moments(shared)["roles"]["engine"]["generate"]
    parts = next(moment.parts_gib for moment in moments["rollout"] if moment.moment == "generate")
    assert engine["torch_gib"] == pytest.approx(sum(parts[name] for name in ("weights", "activation", "graphs", "kv")))


def test_the_file_keeps_the_highest_and_forgets_no_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray is stood in for: an answer is a report, there at once, or an error where the role has died."""
    answers: dict[str, Any] = {}
    monkeypatch.setattr(ray, "wait", lambda asked, **_: (list(asked), []))
    monkeypatch.setattr(ray, "get", lambda name: answers[name])

    def role(name: str) -> SimpleNamespace:
        call = SimpleNamespace(remote=lambda _: name)
        return SimpleNamespace(name=name, kind=name.split()[0], actor=SimpleNamespace(__ray_call__=call))

    fleet: Any = SimpleNamespace(roles=[role("learner 0"), role("engine 0")])
    log = MemoryLog(str(tmp_path), load_layout(LAYOUT).layout, fleet)
    for backward, generate in ((2.0, 1.0), (1.5, 3.0)):
        for name, moment, size in (("learner 0", "backward", backward), ("engine 0", "generate", generate)):
            peaks = {moment: {"resident_gib": size}}
            answers[name] = {"host": "n1", "pid": 7, "now": {"resident_gib": 0.5}, "moments": peaks}
        log.close()
    found = json.loads((tmp_path / "memory.json").read_text())
    moments = {entry["role"]: entry["moments"] for entry in found["roles"]}
    assert moments == {
        "learner 0": {"backward": {"resident_gib": 2.0}},
        "engine 0": {"generate": {"resident_gib": 3.0}},
    }
    assert found["estimate"]["notes"] == ["This layout runs on CPU slots: there is no card to fill."]
    assert log.now("engine 0") == {"resident_gib": 0.5}
    assert log.now("teacher 0") == {}
