"""Weights, gradients, optimizer and gathered layers against hand computation."""

from __future__ import annotations

import pytest
from model_support import shape_of
from msgspec import structs

from rltui.hardware.architecture import Architecture, Experts
from rltui.hardware.models import known_model
from rltui.hardware.parameters import count_parameters
from rltui.memory import settings as s
from rltui.memory.estimate import GIB
from rltui.memory.states import (
    adapter_parameters,
    frozen_gib,
    gathered_gib,
    slice_of,
    state_gib,
    step_gib,
)
from rltui.memory.training import estimate_training

DENSE = Architecture(name="dense", layers=4, hidden=1024, heads=8, kv_heads=8, head_dim=128, ffn=4096, vocab=32000)
SPARSE = Architecture(
    name="sparse", layers=4, hidden=1024, heads=8, kv_heads=8, head_dim=128, vocab=32000,
    experts=Experts(layers=4, count=16, top_k=2, ffn=512),
)  # fmt: skip
PARAMETERS = count_parameters(DENSE).total


@pytest.mark.parametrize(
    ("stage", "weights", "gradients", "optimizer"),
    [(0, 2, 2, 12), (1, 2, 2, 12 / 8), (2, 2, 2 / 8, 12 / 8), (3, 2 / 8, 2 / 8, 12 / 8)],
)
def test_zero_divides_what_its_stage_says(stage: int, weights: float, gradients: float, optimizer: float) -> None:
    sharding = s.Sharding(gpus=8, zero_stage=stage)  # type: ignore[arg-type]
    parts = state_gib(slice_of(DENSE, sharding), s.DEEPSPEED_BF16, sharding)
    expected = {"weights": weights, "gradients": gradients, "optimizer": optimizer}
    assert parts == pytest.approx({name: size * PARAMETERS / GIB for name, size in expected.items()})


@pytest.mark.parametrize(("stage", "elements"), [(0, 0), (1, 5e8), (2, 5e8), (3, 5e8)])
def test_deepspeed_has_a_bucket_of_gradients_wherever_it_has_zero(stage: int, elements: float) -> None:
    sharding, large = s.Sharding(gpus=8, zero_stage=stage), known_model("Qwen/Qwen2.5-7B")  # type: ignore[arg-type]
    assert large is not None
    parts = gathered_gib(large, s.DEEPSPEED_BF16, sharding, trained=True)
    assert parts.get("buffers", 0.0) == pytest.approx(elements * 2 / GIB)
    small = gathered_gib(DENSE, s.DEEPSPEED_BF16, sharding, trained=True)
    assert small.get("buffers", 0.0) == pytest.approx(min(elements, PARAMETERS) * 2 / GIB)


@pytest.mark.parametrize(
    ("states", "total"),
    [
        (s.DEEPSPEED_BF16, 16),
        (s.DEEPSPEED_BF16_FP32_GRADIENTS, 18),
        (s.DEEPSPEED_FP32, 20),
        (s.FP32, 16),
        (s.FSDP_FP32, 16),
        (s.FSDP_FP32_FOREACH, 16),
        (s.MEGATRON_BF16, 18),
        (s.PURE_BF16, 8),
        (s.PURE_BF16_FOREACH, 8),
        (s.BF16_ADAM_8BIT, 6),
        (s.BF16_ADAM_8BIT_FUSED, 2),
    ],
)
def test_bytes_of_a_parameter(states: s.States, total: int) -> None:
    assert states.resident == total


def test_megatron_replicates_weights_and_gradients() -> None:
    sharding = s.Sharding(gpus=8, backend="megatron", zero_stage=1, tensor_parallel=2)
    parts = state_gib(slice_of(DENSE, sharding), s.MEGATRON_BF16, sharding)
    assert sum(parts.values()) == pytest.approx((6 + 12 / 4) * PARAMETERS / 2 / GIB)


def test_experts_are_cut_by_expert_parallelism_and_replicated_over_the_rest() -> None:
    sharding = s.Sharding(gpus=16, backend="megatron", tensor_parallel=2, pipeline_parallel=2, expert_parallel=4)
    part, count = slice_of(SPARSE, sharding), count_parameters(SPARSE)
    assert part.shared == count.shared / 4
    assert part.routed == count.routed / 8
    assert (part.shared_ranks, part.routed_ranks) == (4, 2)
    halved = slice_of(SPARSE, structs.replace(sharding, expert_tensor_parallel=2))
    assert (halved.routed, halved.routed_ranks) == (part.routed / 2, 1)


def test_deferred_gradients_are_whole_and_in_float32_until_the_last_micro_batch() -> None:
    synced = s.Sharding(gpus=4, backend="fsdp")
    deferred = structs.replace(synced, defers_sync=True)
    moments = {}
    for sharding in (synced, deferred):
        found = estimate_training(DENSE, sharding, s.Workload(tokens=64), s.PURE_BF16)
        moments[sharding] = {moment.moment: moment.parts_gib["gradients"] for moment in found.moments[1:]}
    shard = 2 * PARAMETERS / 4 / GIB
    assert moments[synced] == pytest.approx({"backward": shard, "optimizer step": shard})
    assert moments[deferred] == pytest.approx({"backward": 4 * PARAMETERS / GIB, "optimizer step": shard})
    one = estimate_training(DENSE, deferred, s.Workload(tokens=64, accumulates=False), s.PURE_BF16).moments[1]
    assert one.parts_gib["gradients"] <= shard


def test_float32_adapters_have_no_16_bit_copy_of_the_frozen_base() -> None:
    adapter = s.Adapter(rank=8, base_bytes=2, states=s.FP32, float32=True)
    one = s.Sharding(gpus=1, backend="plain", zero_stage=0)
    found = estimate_training(DENSE, one, s.Workload(tokens=64), s.FP32, adapter=adapter)
    assert not any("cast weights" in moment.parts_gib for moment in found.moments)


def test_what_is_not_quantised_is_float32_where_peft_prepared_the_model() -> None:
    one, work = s.Sharding(gpus=1, backend="plain", zero_stage=0), s.Workload(tokens=1000)
    plain = s.Adapter(rank=8, base_bytes=0.5625, states=s.FP32)
    ends = count_parameters(DENSE)
    parts = {}
    for name, adapter in (("16 bits", plain), ("float32", structs.replace(plain, float32_ends=True))):
        parts[name] = estimate_training(DENSE, one, work, s.FP32, adapter=adapter).moments[1].parts_gib
    more = {name: parts["float32"][name] - parts["16 bits"][name] for name in ("weights", "activations", "logits")}
    assert more["weights"] == pytest.approx(2 * (ends.embedding + ends.head) / GIB)
    assert more["logits"] == pytest.approx(2 * DENSE.vocab * 1000 / GIB)
    assert parts["float32"]["activations"] == pytest.approx(2 * parts["16 bits"]["activations"])


def test_offload_takes_the_optimizer_off_the_card() -> None:
    for offload, left in (("moments", 4), ("optimizer", 0)):
        sharding = s.Sharding(gpus=1, zero_stage=2, offload=offload)  # type: ignore[arg-type]
        parts = state_gib(slice_of(DENSE, sharding), s.DEEPSPEED_BF16, sharding)
        assert parts["optimizer"] == pytest.approx(left * PARAMETERS / GIB)
    everything = s.Sharding(gpus=1, zero_stage=3, offload="all")
    assert sum(state_gib(slice_of(DENSE, everything), s.DEEPSPEED_BF16, everything).values()) == 0


def test_a_share_of_the_optimizer_that_is_offloaded_leaves_the_rest_on_the_card() -> None:
    for offload, share, left in (("optimizer", 0.4, 0.6 * 12), ("moments", 0.75, 3 + 0.75 * 4), ("optimizer", 0, 12)):
        sharding = s.Sharding(gpus=1, backend="megatron", zero_stage=1, offload=offload, offload_share=share)  # type: ignore[arg-type]
        parts = state_gib(slice_of(DENSE, sharding), s.MEGATRON_BF16, sharding)
        assert parts["optimizer"] == pytest.approx(left * PARAMETERS / GIB)


def test_secondary_partition_adds_its_share_of_16_bit_weights() -> None:
    plain, hpz = s.Sharding(gpus=16, zero_stage=3), s.Sharding(gpus=16, zero_stage=3, hpz=8)
    part = slice_of(DENSE, plain)
    added = state_gib(part, s.DEEPSPEED_BF16, hpz)["weights"] - state_gib(part, s.DEEPSPEED_BF16, plain)["weights"]
    assert added == pytest.approx(2 * PARAMETERS / 8 / GIB)


def test_step_needs_float32_gradients_and_adamws_temporary() -> None:
    sharding = s.Sharding(gpus=4, zero_stage=2)
    part = slice_of(DENSE, sharding)
    assert step_gib(part, s.DEEPSPEED_BF16, sharding) == pytest.approx(8 * PARAMETERS / 4 / GIB)
    llama = shape_of("Llama-3.1-70B")
    three = s.Sharding(gpus=8, zero_stage=3)
    assert step_gib(slice_of(llama, three), s.DEEPSPEED_BF16, three) == pytest.approx(8e9 / GIB)  # one sub-group
    offloaded = s.Sharding(gpus=8, zero_stage=3, offload="optimizer")
    assert step_gib(slice_of(llama, offloaded), s.DEEPSPEED_BF16, offloaded) == 0


def test_deepspeed_keeps_a_billion_live_parameters_and_a_bucket() -> None:
    llama = shape_of("Llama-3.1-8B")
    parts = gathered_gib(llama, s.DEEPSPEED_BF16, s.Sharding(gpus=8, zero_stage=3), trained=True)
    assert parts == pytest.approx({"gathered": 2e9 / GIB, "buffers": 1e9 / GIB})


def test_small_models_gather_no_more_than_they_are() -> None:
    parts = gathered_gib(DENSE, s.DEEPSPEED_BF16, s.Sharding(gpus=2, zero_stage=3), trained=True)
    assert parts["gathered"] == pytest.approx(2 * PARAMETERS / GIB)


def test_fsdp_gathers_layers_and_both_ends() -> None:
    count = count_parameters(DENSE)
    parts = gathered_gib(DENSE, s.FSDP_FP32, s.Sharding(gpus=8, backend="fsdp"), trained=False)
    ends = count.embedding + count.head
    assert parts["gathered"] == pytest.approx(2 * (3.5 * count.largest_layer + ends) / GIB)


def test_first_fsdp_gathers_two_layers() -> None:
    count = count_parameters(DENSE)
    parts = gathered_gib(DENSE, s.FSDP_FP32, s.Sharding(gpus=8, backend="fsdp1"), trained=False)
    assert parts["gathered"] == pytest.approx(2 * (2 * count.largest_layer + count.embedding + count.head) / GIB)


@pytest.mark.parametrize(("backend", "layers"), [("fsdp", 3.5), ("fsdp1", 2)])
def test_fsdp_gathers_a_quantised_base_as_it_is_stored(backend: s.Backend, layers: float) -> None:
    count, sharding = count_parameters(DENSE), s.Sharding(gpus=8, backend=backend)
    parts = gathered_gib(DENSE, s.PURE_BF16, sharding, trained=False, base_bytes=0.55)
    packed, ends, dequantised = layers * 0.55 * count.largest_layer, count.embedding + count.head, 1024 * 4096
    assert parts["gathered"] == pytest.approx((packed + 2 * (ends + dequantised)) / GIB)
    float32 = gathered_gib(DENSE, s.PURE_BF16, sharding, trained=False, base_bytes=4.0)
    assert float32["gathered"] == pytest.approx(2 * (layers * count.largest_layer + ends) / GIB)  # cast, then gathered


def test_deepspeed_gathers_a_quantised_base_as_it_is_stored() -> None:
    llama, sharding = known_model("Llama-2-70B"), s.Sharding(gpus=8, zero_stage=3)
    assert llama is not None
    large = gathered_gib(llama, s.DEEPSPEED_BF16, sharding, trained=False, base_bytes=0.55)
    small = gathered_gib(DENSE, s.DEEPSPEED_BF16, sharding, trained=False, base_bytes=0.55)
    assert large == pytest.approx({"gathered": 2e9 / GIB})
    assert small == pytest.approx({"gathered": 0.55 * PARAMETERS / GIB})


@pytest.mark.parametrize(("states", "bytes_"), [(s.PURE_BF16_FOREACH, 2), (s.FSDP_FP32_FOREACH, 4), (s.FSDP_FP32, 0)])
def test_torchs_adamw_takes_what_it_steps_once_more(states: s.States, bytes_: int) -> None:
    sharding = s.Sharding(gpus=2, backend="fsdp1")
    assert step_gib(slice_of(DENSE, sharding), states, sharding) == pytest.approx(bytes_ * PARAMETERS / 2 / GIB)


def test_adapters_by_hand() -> None:
    adapter = s.Adapter(rank=8)
    attention, mlp = 4 * (1024 + 1024), 3 * (1024 + 4096)
    assert adapter_parameters(DENSE, adapter) == 8 * 4 * (attention + mlp)
    assert adapter_parameters(DENSE, s.Adapter(rank=8, targets="attention")) == 8 * 4 * attention
    assert adapter_parameters(SPARSE, adapter) == 8 * 4 * attention
    assert adapter_parameters(SPARSE, s.Adapter(rank=8, targets="all")) == 8 * 4 * (attention + 16 * 3 * (1024 + 512))


def test_quantised_base_keeps_both_ends_in_16_bits() -> None:
    sharding = s.Sharding(gpus=1, backend="plain", zero_stage=0)
    parts = frozen_gib(DENSE, slice_of(DENSE, sharding), s.Adapter(rank=8, base_bytes=0.5), sharding)
    ends = 2 * 32000 * 1024
    assert parts["weights"] == pytest.approx((0.5 * (PARAMETERS - ends) + 2 * ends) / GIB)
    assert parts["adapters"] == pytest.approx(14 * adapter_parameters(DENSE, s.Adapter(rank=8)) / GIB)
    assert parts["gradients"] == pytest.approx(parts["adapters"] / 7)


@pytest.mark.parametrize(
    ("offload", "stage", "base", "adapters"),
    [("", 3, 2, 18), ("optimizer", 3, 2, 2), ("all", 3, 0, 0), ("optimizer", 1, 2, 6)],
)
def test_offload_takes_the_states_of_adapters_and_a_frozen_base_off_the_card(
    offload: str, stage: int, base: float, adapters: float
) -> None:
    sharding = s.Sharding(gpus=4, zero_stage=stage, offload=offload)  # type: ignore[arg-type]
    adapter = s.Adapter(rank=8, base_bytes=2, states=s.DEEPSPEED_BF16_FP32_GRADIENTS)
    parts = frozen_gib(DENSE, slice_of(DENSE, sharding), adapter, sharding)
    ranks = 4 if stage == 3 else 1
    assert parts["weights"] * GIB == pytest.approx(base * PARAMETERS / ranks)
    held = parts["adapters"] + parts["gradients"]
    assert held * GIB == pytest.approx(adapters * adapter_parameters(DENSE, adapter) / ranks)


def test_units_of_their_own_are_gathered_in_their_turn() -> None:
    """torchtune's ``custom_sharded_layers``: with layers, neither end; for the loss, the larger of them."""
    model = shape_of("Llama-3.1-8B")
    count = count_parameters(model)
    root, apart = (
        gathered_gib(model, s.PURE_BF16, s.Sharding(gpus=8, backend="fsdp", ends_apart=ends), trained=False)["gathered"]
        for ends in (False, True)
    )
    assert root - apart == pytest.approx(2 * (count.embedding + count.head) / GIB)
    small = structs.replace(model, layers=1, ffn=64)
    alone = gathered_gib(small, s.PURE_BF16, s.Sharding(gpus=8, backend="fsdp", ends_apart=True), trained=True)[
        "gathered"
    ]
    assert alone == pytest.approx(2 * 2 * count.head / GIB)  # with its gradient


def test_step_inside_the_backward_pass_holds_one_gradient() -> None:
    model = shape_of("Llama-3.1-8B")
    plain = s.Sharding(backend="plain", zero_stage=0)
    held = gathered_gib(model, s.BF16_ADAM_8BIT_FUSED, plain, trained=True)
    assert held == {"buffers": pytest.approx(2 * 128256 * 4096 / GIB)}
    assert gathered_gib(model, s.BF16_ADAM_8BIT_FUSED, plain, trained=False) == {}


def test_adapters_on_experts_are_cut_as_the_experts_are() -> None:
    """Expert parallelism cuts them, tensor parallelism those outside: each once, not one by the other."""
    sharding = s.Sharding(gpus=8, backend="megatron", zero_stage=1, tensor_parallel=4, expert_parallel=2)
    adapter = s.Adapter(rank=8, targets="all", states=s.MEGATRON_BF16)
    outside = adapter_parameters(SPARSE, s.Adapter(rank=8))
    routed = adapter_parameters(SPARSE, adapter) - outside
    held = frozen_gib(SPARSE, slice_of(SPARSE, sharding), adapter, sharding)["adapters"]
    assert held == pytest.approx(14 * (outside / 4 + routed / 2) / GIB)
