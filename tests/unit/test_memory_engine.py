"""The engine's budget, and how many tokens its KV cache holds."""

from __future__ import annotations

import pytest
from model_support import shape_of
from msgspec import structs

from rltui.hardware.gpus import find_gpu
from rltui.hardware.kv_cache import kv_layers
from rltui.hardware.models import stored_bytes
from rltui.memory import EngineSettings, estimate_engine, estimate_training
from rltui.memory import settings as s
from rltui.memory.engine import (
    absorbed_gib,
    activation_gib,
    estimate_transformers_engine,
    repeated_parameters,
    vllm_batching,
    weights_gib,
)
from rltui.memory.estimate import GIB
from rltui.memory.knobs import engine_knob, valid_tensor_parallel
from rltui.memory.kv_pool import capacity
from rltui.memory.sharing import wake_up_moments


@pytest.mark.parametrize(
    ("card_gib", "weights", "activation", "outside", "kv"),
    [
        (23.58, 14.99, 2.07, 0.35, 3.81),
        (31.74, 14.27, 1.40, 0.09, 12.80),
        (14.56, 0.93, 1.44, 0.11, 10.63),
    ],
)
def test_budget_is_that_of_vllms_logs(
    card_gib: float, weights: float, activation: float, outside: float, kv: float
) -> None:
    settings = EngineSettings(
        weights_gib=weights, activation_gib=activation, non_torch_gib=outside, graphs_in_budget=False
    )
    assert estimate_engine(shape_of("Llama-3.1-8B"), settings, card_gib).kv_gib == pytest.approx(kv, abs=0.015)


@pytest.mark.parametrize(
    ("name", "tokens", "sequences", "measured_gib"),
    [
        ("Qwen2.5-0.5B", 2048, 256, 1.44),
        ("Llama-3.1-8B", 2048, 256, 1.26),
        ("Qwen2.5-7B", 2048, 256, 1.40),
        ("Llama-3.1-8B", 20000, 256, 2.07),
        ("Llama-3.1-8B", 29000, 256, 2.99),
    ],
)
def test_activations_are_those_of_vllms_logs(name: str, tokens: int, sequences: int, measured_gib: float) -> None:
    settings = EngineSettings(max_num_batched_tokens=tokens, max_num_seqs=sequences)
    assert activation_gib(shape_of(name), settings) == pytest.approx(measured_gib, rel=0.04)


def test_graphs_come_out_of_the_budget_or_on_top() -> None:
    inside = estimate_engine(shape_of("Qwen3-8B"), EngineSettings(graphs_in_budget=True), 79.18)
    outside = estimate_engine(shape_of("Qwen3-8B"), EngineSettings(graphs_in_budget=False), 79.18)
    eager = estimate_engine(shape_of("Qwen3-8B"), EngineSettings(graphs=False), 79.18)
    assert outside.kv_gib == eager.kv_gib == pytest.approx((inside.kv_gib or 0) + inside.graphs_gib)


def test_what_tensor_parallelism_divides_of_a_step_is_the_feed_forward_network_gated_or_not() -> None:
    few = EngineSettings(max_num_seqs=1)
    for gated in (True, False):
        shape = structs.replace(shape_of("Llama-3.1-8B"), mlp_matrices=3 if gated else 2)
        one, eight = (activation_gib(shape, structs.replace(few, tensor_parallel=degree)) for degree in (1, 8))
        divided = few.max_num_batched_tokens * 2 * shape.mlp_matrices * shape.ffn / GIB
        assert one - eight == pytest.approx(divided * 7 / 8)


def test_sglang_budget_has_no_activations() -> None:
    engine = estimate_engine(shape_of("Qwen3-8B"), EngineSettings(static_budget=True, memory_utilization=0.6), 79.18)
    assert engine.kv_gib == pytest.approx(0.6 * (79.18 - 0.5) - engine.weights_gib)


def test_quantised_weights_leave_the_vision_tower_in_16_bits() -> None:
    """vLLM loaded 6.59 GiB of Qwen2.5-VL-7B-Instruct-AWQ, whose ``modules_to_not_convert`` is the tower."""
    assert weights_gib(shape_of("Qwen2.5-VL-7B"), EngineSettings(weight_bytes=0.53)) == pytest.approx(6.59, rel=0.02)


def test_quantised_weights_leave_both_ends_in_16_bits() -> None:
    gpt = shape_of("gpt-oss-120b")
    stored = weights_gib(gpt, EngineSettings(expert_weight_bytes=0.53))
    assert stored == pytest.approx(60.8, rel=0.02)  # the published checkpoint
    ends = 2 * 151936 * 4096
    fp8 = weights_gib(shape_of("Qwen3-8B"), EngineSettings(weight_bytes=1))
    assert fp8 == pytest.approx((8_190_735_360 - ends + 2 * ends) * 1.002 / GIB)


def test_each_gpu_has_routers_and_latent_projections_whole() -> None:
    deepseek = shape_of("DeepSeek-V3")
    latent, routers = 61 * 7168 * (1536 + 512 + 64), 58 * 256 * (7168 + 1)
    assert repeated_parameters(deepseek, 1) == 0
    assert repeated_parameters(deepseek, 8) == pytest.approx(7 / 8 * (latent + routers))
    assert repeated_parameters(shape_of("Qwen3-30B-A3B"), 4) == pytest.approx(3 / 4 * 48 * 128 * 2048)


def test_each_gpu_has_one_kv_head_at_least() -> None:
    qwen = shape_of("Qwen2.5-7B")  # 4 heads of 128 in 28 layers
    assert repeated_parameters(qwen, 4) == 0
    assert repeated_parameters(qwen, 8) == pytest.approx(2 * 3584 * 28 * (128 - 4 * 128 / 8))


def test_decoding_reads_16_bit_copies_of_quantised_latent_projections() -> None:
    deepseek = shape_of("DeepSeek-V3")
    copies = 2 * 61 * 512 * 128 * (128 + 128) / GIB
    assert absorbed_gib(deepseek, EngineSettings(weight_bytes=1, tensor_parallel=8)) == pytest.approx(copies / 8)
    assert absorbed_gib(deepseek, EngineSettings()) == 0
    assert absorbed_gib(deepseek, EngineSettings(static_budget=True)) == pytest.approx(copies)
    assert absorbed_gib(shape_of("Qwen3-8B"), EngineSettings(weight_bytes=1)) == 0


def test_weights_of_deepseek_over_eight_gpus_are_those_of_logs() -> None:
    settings = EngineSettings(weight_bytes=1, tensor_parallel=8)
    whole = weights_gib(shape_of("DeepSeek-V3"), settings)
    # An engine without the copies, HabanaAI/vllm-fork#809.
    assert whole - absorbed_gib(shape_of("DeepSeek-V3"), settings) == pytest.approx(79.41, rel=0.003)
    # SGLang, which then cloned the shared expert for each GPU, sgl-project/sglang#6001.
    clones = 7 / 8 * 58 * 3 * 7168 * 2048 / GIB
    assert whole + clones == pytest.approx(81.66, rel=0.003)


def test_all_experts_are_resident() -> None:
    assert weights_gib(shape_of("Qwen3-30B-A3B"), EngineSettings()) == pytest.approx(56.98, rel=0.001)


def test_unknown_card_has_no_cache() -> None:
    engine = estimate_engine(shape_of("Qwen3-8B"), EngineSettings(), None)
    assert (engine.kv_gib, engine.kv_tokens, engine.max_concurrency, engine.budget_gib) == (None, None, None, None)


def test_uniform_layers_hold_whole_blocks() -> None:
    layers = kv_layers(shape_of("Qwen2.5-7B"))
    pool = capacity(layers, 14984 * 16 * 57344 + 1, max_model_len=2048, in_flight_tokens=2048, block_tokens=16)
    assert pool.tokens == 14984 * 16  # a logged engine
    assert pool.max_concurrency == pytest.approx(117.06, abs=0.01)


def test_hybrid_cache_depends_on_the_length_it_is_divided_by() -> None:
    layers = kv_layers(shape_of("gpt-oss-20b"))
    short, long = (
        capacity(layers, 20 * GIB, max_model_len=length, in_flight_tokens=16384, block_tokens=16)
        for length in (4096, 131072)
    )
    assert (short.tokens, long.tokens) == (436052, 775960)  # what vLLM 0.32 computes
    assert short.max_concurrency > long.max_concurrency


@pytest.mark.parametrize("name", ["Qwen3-Next-80B-A3B", "Nemotron-3-Nano-30B-A3B"])
def test_states_of_linear_layers_take_one_page_a_sequence(name: str) -> None:
    layers = kv_layers(shape_of(name))
    pool = capacity(layers, 20 * GIB, max_model_len=32768, in_flight_tokens=8192, block_tokens=16)
    exact = 20 * GIB / layers.sequence_bytes(32768)
    assert pool.max_concurrency == pytest.approx(exact, rel=0.1)


def test_no_bytes_hold_no_tokens() -> None:
    layers = kv_layers(shape_of("Qwen3-8B"))
    assert capacity(layers, -5, 100, 100, 16).tokens == 0
    assert capacity(layers, 0, 100, 100, 16).max_concurrency == 0


def test_degrees_of_tensor_parallelism() -> None:
    assert valid_tensor_parallel(shape_of("Qwen2.5-7B"), 8) == [1, 2, 4]
    assert valid_tensor_parallel(shape_of("Qwen3-30B-A3B"), 8) == [1, 2, 4, 8]
    assert valid_tensor_parallel(shape_of("Qwen2.5-32B"), 16) == [1, 2, 4, 8]


def test_engine_knob_knows_who_else_is_on_the_card() -> None:
    olmo = shape_of("OLMo-2-0325-32B")
    assert engine_knob(olmo, 1, 4, 0.55, shared=False) == "roles.rollout.memory_utilization=0.9"
    assert engine_knob(olmo, 1, 4, 0.55, shared=True) == "roles.rollout.tensor_parallel=2"
    assert engine_knob(olmo, 1, 4, 0.9, shared=False) == "roles.rollout.tensor_parallel=2"
    assert engine_knob(olmo, 8, 8, 0.9, shared=False) == ""


def test_transformers_engine_caches_the_whole_batch() -> None:
    engine = estimate_transformers_engine(shape_of("Qwen3-0.6B"), sequences=64, max_model_len=1024, item_bytes=4)
    assert engine.kv_gib == pytest.approx(64 * 1024 * 2 * 114688 / GIB)
    assert engine.weights_gib == pytest.approx(4 * 596_049_920 / GIB)


def test_engine_wakes_beside_the_trainer() -> None:
    learner = estimate_training(shape_of("Qwen3-8B"), s.Sharding(gpus=8), s.Workload(tokens=4096))
    engine = estimate_engine(shape_of("Qwen3-8B"), EngineSettings(memory_utilization=0.5), 79.18)
    held = learner.moments[0]
    wake, generate = wake_up_moments(learner, engine, bucket_gib=0.5)
    trainer = held.total_gib - held.parts_gib["gradients"]
    assert wake.total_gib == pytest.approx(trainer + engine.weights_gib + engine.non_torch_gib + 0.5)
    assert generate.total_gib == pytest.approx(
        wake.total_gib - 0.5 + engine.activation_gib + engine.graphs_gib + (engine.kv_gib or 0.0)
    )


@pytest.mark.parametrize(
    ("card", "server", "expected"),
    [
        ("H100-SXM-80GB", False, (1024, 16384)),
        ("H100-SXM-80GB", True, (1024, 8192)),
        ("A100-SXM-80GB", True, (256, 2048)),
        ("B200", True, (1024, 16384)),
        ("RTX4090-24GB", False, (256, 8192)),
        ("unheard of", False, (256, 8192)),
    ],
)
def test_batching_that_vllm_takes_by_itself(card: str, server: bool, expected: tuple[int, int]) -> None:
    batching = vllm_batching(find_gpu(card), server=server)
    assert (batching.sequences, batching.tokens) == expected


def test_mxfp4_experts_take_what_vllm_loads() -> None:
    gpt, stored = shape_of("gpt-oss-120b"), stored_bytes("gpt-oss-120b")
    assert stored is not None
    settings = EngineSettings(weight_bytes=stored[0], expert_weight_bytes=stored[1])
    assert weights_gib(gpt, settings) == pytest.approx(64.4, rel=0.005)
