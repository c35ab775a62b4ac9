"""Moments, verdicts and knobs of a model in training."""

from __future__ import annotations

from typing import Literal

import pytest
from model_support import shape_of

from rltui.hardware.parameters import count_parameters
from rltui.memory import estimate_training
from rltui.memory import settings as s
from rltui.memory.estimate import GIB, Doubt, Moment, RoleEstimate
from rltui.memory.states import adapter_parameters


def olmo_32b(learners: int, gather: str = "layer", hpz: int = 1) -> RoleEstimate:
    """open-instruct's 32B learner: 18 bytes a parameter, packs of 10k tokens."""
    return estimate_training(
        shape_of("OLMo-2-0325-32B"),
        s.Sharding(gpus=learners, zero_stage=3, hpz=hpz),
        s.Workload(tokens=10240, head="compiled", kernels="eager"),
        s.DEEPSPEED_BF16_FP32_GRADIENTS,
        sync=s.WeightSync(gather=gather),  # type: ignore[arg-type]
        capacity_gib=95.6,
    )


def test_moments_come_in_their_order() -> None:
    estimate = estimate_training(
        shape_of("Qwen3-8B"), s.Sharding(gpus=8), s.Workload(tokens=4096), sync=s.WeightSync(), log_probs=True
    )
    assert [m.moment for m in estimate.moments] == ["load", "log-probs", "backward", "optimizer step", "weight sync"]
    assert estimate.peak_gib == max(m.total_gib for m in estimate.moments)


def test_whole_gather_makes_the_first_sync_the_peak() -> None:
    """A 32B model on 8 cards of 96 GB trains, and dies when the whole of it is gathered to be sent."""
    layer, whole = olmo_32b(8), olmo_32b(8, "whole")
    assert layer.peak.moment == "backward"
    assert layer.verdict != "no"
    assert (whole.peak.moment, whole.verdict) == ("weight sync", "no")
    assert whole.knob == "roles.learner.gather_whole_model=false"
    sync = whole.moments[-1].parts_gib["gathered"]
    assert sync == pytest.approx(2 * count_parameters(shape_of("OLMo-2-0325-32B")).total / GIB)
    assert olmo_32b(8, "clone").moments[-1].parts_gib["gathered"] == pytest.approx(2 * sync)


def test_sync_by_layer_needs_one_layer_and_one_bucket() -> None:
    sync = olmo_32b(8).moments[-1].parts_gib
    assert sync["bucket"] == 1.0
    assert 0.5 < sync["gathered"] < 1.5


def adapted(backend: s.Backend, **changes: str) -> RoleEstimate:
    """Llama-3-8B with adapters on attention, 64k tokens a GPU, logits never all there."""
    workload = s.Workload(tokens=65536, head="chunked", **changes)  # type: ignore[arg-type]
    adapter = s.Adapter(rank=16, targets="attention", states=s.PURE_BF16_FOREACH)
    sharding = s.Sharding(gpus=2, backend=backend)
    return estimate_training(shape_of("Llama-3.1-8B"), sharding, workload, s.FSDP_FP32_FOREACH, adapter=adapter)


def test_first_fsdp_keeps_gradients_of_frozen_layers_inputs() -> None:
    backward, first = (
        next(m for m in adapted("fsdp1").moments if m.moment == name) for name in ("backward", "first layer")
    )
    inputs = 32 * 2 * 4096 * 65536 / GIB
    assert backward.parts_gib["activations"] == pytest.approx(inputs)
    assert first.parts_gib["input gradients"] == pytest.approx(inputs)
    assert first.total_gib == pytest.approx(backward.total_gib + inputs - backward.parts_gib["logits"])
    assert adapted("fsdp1").peak.torch_gib == pytest.approx(61_448_585_728 / GIB, rel=0.05)  # fms-acceleration's table


def test_no_input_gradients_are_kept_elsewhere() -> None:
    for estimate in (adapted("fsdp"), adapted("fsdp1", checkpointing="none")):
        assert [m.moment for m in estimate.moments] == ["load", "backward", "optimizer step"]


def test_optimizer_step_is_the_peak_of_short_sequences() -> None:
    estimate = estimate_training(shape_of("Qwen2.5-1.5B"), s.Sharding(gpus=1, zero_stage=2), s.Workload(tokens=64))
    assert estimate.peak.moment == "optimizer step"
    assert estimate.peak.parts_gib["step"] == pytest.approx(8 * 1_543_714_304 / GIB)


def test_offloaded_optimizer_leaves_weights_a_bucket_and_the_context_after_loading() -> None:
    """DeepSpeed issue 4527: 6.8 billion parameters, ZeRO-3 with offload, one card: 14.3 GiB in nvidia-smi."""
    estimate = estimate_training(
        shape_of("Llama-2-7B"), s.Sharding(gpus=1, zero_stage=3, offload="optimizer"), s.Workload(tokens=512)
    )
    load, backward = estimate.moments[0], estimate.moments[1]
    assert load.total_gib + backward.parts_gib["buffers"] == pytest.approx(14.3, rel=0.05)


def test_frozen_reference_is_divided_as_the_model_is() -> None:
    plain = estimate_training(shape_of("Qwen3-8B"), s.Sharding(gpus=8), s.Workload(tokens=64))
    both = estimate_training(shape_of("Qwen3-8B"), s.Sharding(gpus=8), s.Workload(tokens=64, reference=1))
    assert both.peak_gib - plain.peak_gib == pytest.approx(2 * 8_190_735_360 / 8 / GIB)


def test_lora_needs_no_gradients_of_the_base() -> None:
    full = estimate_training(shape_of("Qwen3-8B"), s.Sharding(gpus=1, zero_stage=0), s.Workload(tokens=512))
    lora = estimate_training(
        shape_of("Qwen3-8B"), s.Sharding(gpus=1, zero_stage=0), s.Workload(tokens=512), adapter=s.Adapter(rank=16)
    )
    assert lora.peak.parts_gib["gradients"] < 0.1, "of the adapters alone"
    assert lora.peak_gib < 25 < 130 < full.peak_gib


@pytest.mark.parametrize(
    ("peak", "capacity", "expected"),
    [
        (50, 79, "fits"),
        (72.6, 79, "fits"),
        (72.7, 79, "tight"),
        (79, 79, "tight"),
        (79.1, 79, "no"),
        (5, None, "unknown"),
    ],
)
def test_verdict(peak: float, capacity: float | None, expected: str) -> None:
    assert role_of(capacity, weights=peak).verdict == expected


def role_of(capacity_gib: float | None, **parts_gib: float) -> RoleEstimate:
    backward = Moment(moment="backward", parts_gib=parts_gib)
    return RoleEstimate(role="learner", gpus=1, capacity_gib=capacity_gib, moments=(backward,), error=Doubt(0.1, 0.1))


def test_what_fits_once_cached_blocks_are_given_back_is_tight() -> None:
    """Logits are gone when a layer is recomputed; their blocks are not, until the allocator is about to run out."""
    assert role_of(79, context=1, weights=60, logits=16, layer=2.5).verdict == "tight"
    assert role_of(79, context=1, weights=60, logits=18.1, layer=2.5).verdict == "no"


@pytest.mark.parametrize(("doubt", "words"), [(Doubt(0.12, 0.12), "±12%"), (Doubt(0.2, 0.3), "-20% +30%")])
def test_a_doubt_says_both_its_sides_where_they_differ(doubt: Doubt, words: str) -> None:
    assert str(doubt) == words
    assert doubt.or_more(Doubt(0.3, 0.1)) == Doubt(0.3, doubt.above)


def knob(zero_stage: int = 3, gpus: int = 8, **workload: object) -> str:
    estimate = estimate_training(
        shape_of("Qwen3-8B"),
        s.Sharding(gpus=gpus, zero_stage=zero_stage),  # type: ignore[arg-type]
        s.Workload(**workload),  # type: ignore[arg-type]
        sync=s.WeightSync(),
    )
    assert estimate.reason
    return estimate.knob


def test_knob_moves_the_part_that_makes_the_peak() -> None:
    assert knob(tokens=65536, sequences=8, checkpointing="none") == "roles.learner.gradient_checkpointing=true"
    assert knob(tokens=65536, sequences=8, checkpointing="full") == "roles.learner.micro_batch=4"
    assert knob(tokens=65536, sequences=1, checkpointing="full") == ""
    assert knob(tokens=512, zero_stage=2) == "roles.learner.zero_stage=3"
    assert knob(tokens=512, zero_stage=3) == ""
    assert knob(tokens=512, zero_stage=0, gpus=1) == ""  # nothing to divide among


def zero2(
    name: str, offload: Literal["", "optimizer"] = "", states: s.States = s.DEEPSPEED_BF16_FP32_GRADIENTS
) -> RoleEstimate:
    sharding = s.Sharding(gpus=1, zero_stage=2, offload=offload)
    return estimate_training(shape_of(name), sharding, s.Workload(tokens=64, head="chunked"), states)


@pytest.mark.parametrize(("name", "tied"), [("Qwen3-4B", True), ("Qwen3-8B", False)])
def test_zero_2_ends_a_backward_pass_with_gradients_in_both_widths(name: str, tied: bool) -> None:
    parts = next(m for m in zero2(name).moments if m.moment == "backward").parts_gib
    embedding = 2 * shape_of(name).vocab * shape_of(name).hidden / GIB if tied else 0.0
    assert parts["16-bit gradients"] == pytest.approx(parts["gradients"] / 2 + embedding)
    assert "activations" not in parts, "they are gone by then"
    once = next(m for m in zero2(name, states=s.DEEPSPEED_BF16).moments if m.moment == "backward").parts_gib
    assert "16-bit gradients" not in once


def test_zero_2_brings_the_gradients_of_an_offloaded_optimizer_back_for_its_step() -> None:
    moments = {moment.moment: moment.parts_gib for moment in zero2("Qwen3-4B", "optimizer").moments}
    step, backward = moments["optimizer step"], moments["backward"]
    assert step["gradients"] == step["weights"], "2 bytes each"
    passing = backward["activations"] + backward["logits"]
    assert backward["gradients"] == pytest.approx(step["gradients"] - passing), "they come while activations go"
    assert "gradients" not in moments["load"]


def test_pefts_adapters_are_on_routed_experts_but_gpt_oss_s() -> None:
    shape = shape_of("Qwen3-30B-A3B")
    linear, peft = (adapter_parameters(shape, s.Adapter(rank=8, targets=each)) for each in ("linear", "peft"))  # type: ignore[arg-type]
    assert shape.experts is not None
    assert peft - linear == 8 * 48 * 128 * (3 * 2048 + 5 * 768), "twice the rank on gate and up, which are one stack"
    stacked = (adapter_parameters(shape_of("gpt-oss-20b"), s.Adapter(targets=each)) for each in ("linear", "peft"))  # type: ignore[arg-type]
    assert len(set(stacked)) == 1


def test_adapters_step_with_float32_gradients_and_temporaries() -> None:
    told = s.Sharding(gpus=1), s.Workload(tokens=64, head="chunked")
    step = estimate_training(shape_of("Qwen3-4B"), *told, adapter=s.Adapter(rank=16)).moments[-1].parts_gib
    assert step["step"] == pytest.approx((step["adapters"] + step["gradients"]) * 8 / 16)
