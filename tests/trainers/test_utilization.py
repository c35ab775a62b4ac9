"""Model FLOPs utilization against arithmetic written out, and silence where there is nothing to measure by."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from trainer_support import LAYOUT

from rltui.hardware.flops import forward_flops_per_token
from rltui.layout.load import load_layout
from trainers.utilization import Lengths, mfu_meter

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainers

ON_H100 = ["hardware.gpu=H100-SXM-80GB", "roles.learner.model=Qwen/Qwen3-8B", "roles.learner.gpus=[2]"]


def test_percent_of_the_peak_is_six_flops_a_parameter_and_token_and_two_for_generation() -> None:
    found = mfu_meter(load_layout(LAYOUT, ON_H100).layout, "")
    assert found is not None
    assert (found.learner_cards, found.engine_cards) == (2, 1)
    measured = found.measure([Lengths(1000, 1000)] * 8, generate_s=10.0, train_s=20.0)
    parameters, peak = 7.57e9, 989e12  # Qwen3-8B without its embedding, head included
    training = 100 * 6 * parameters * 16_000 / (20.0 * 2 * peak)
    assert measured["learner_mfu"] == pytest.approx(training, rel=0.1)  # attention adds a few percent
    generation = 100 * 2 * parameters * 16_000 / (10.0 * peak)
    assert measured["actor_mfu"] == pytest.approx(generation, rel=0.1)


def test_twice_the_time_or_twice_the_cards_is_half_the_utilization() -> None:
    one = mfu_meter(load_layout(LAYOUT, ON_H100).layout, "")
    two = mfu_meter(load_layout(LAYOUT, [*ON_H100, "hardware.nodes=2", "roles.learner.gpus=[2, 2]"]).layout, "")
    assert one is not None
    assert two is not None
    samples = [Lengths(100, 900)]
    fast, slow = one.measure(samples, 1.0, 1.0), one.measure(samples, 2.0, 2.0)
    assert slow == pytest.approx({name: value / 2 for name, value in fast.items()})
    assert two.measure(samples, 1.0, 1.0)["learner_mfu"] == pytest.approx(fast["learner_mfu"] / 2)


def test_nothing_is_measured_on_cpu_or_by_an_unknown_card_or_model(tmp_path: Path) -> None:
    assert mfu_meter(load_layout(LAYOUT).layout, "") is None
    assert mfu_meter(load_layout(LAYOUT, [*ON_H100, "hardware.gpu=Unheard-Of-9000"]).layout, "") is None
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "unheard-of"}))
    own = [*ON_H100, f"roles.learner.model={tmp_path}"]
    assert mfu_meter(load_layout(LAYOUT, own).layout, str(tmp_path)) is None


def test_each_token_that_is_written_attends_to_all_before_it() -> None:
    """The closed form is the sum over tokens: attention grows with each, the matrices do not."""
    found = mfu_meter(load_layout(LAYOUT, ON_H100).layout, "")
    assert found is not None
    prompt, response = 3000, 2000
    read = prompt * forward_flops_per_token(found.model, prompt / 2, head=False)
    written = sum(forward_flops_per_token(found.model, prompt + token) for token in range(1, response + 1))
    measured = found.measure([Lengths(prompt, response)], generate_s=1.0, train_s=1.0)["actor_mfu"]
    assert measured == pytest.approx(100.0 * (read + written) / found.engine_gpu.peak_flops, rel=1e-4)
