"""KV cache bytes and FLOPs against hand computation and published figures."""

from __future__ import annotations

import pytest
from model_support import shape_of

from rltui.hardware.flops import forward_flops_per_token, training_flops_per_token
from rltui.hardware.kv_cache import kv_layers


@pytest.mark.parametrize(
    ("name", "tensor_parallel", "expected"),
    [
        ("Llama-3.1-8B", 1, 2 * 32 * 8 * 128 * 2),
        ("Llama-3.1-8B", 4, 2 * 32 * 2 * 128 * 2),
        ("OLMo-2-1124-7B", 1, 512 * 1024),
        ("Qwen2.5-7B", 1, 56 * 1024),
        ("Qwen3-30B-A3B", 4, 2 * 48 * 1 * 128 * 2),
        ("Qwen3-30B-A3B", 8, 2 * 48 * 1 * 128 * 2),  # four heads on eight GPUs: copied, nothing gained
        ("DeepSeek-V3", 1, 61 * 576 * 2),
        ("DeepSeek-V3", 8, 61 * 576 * 2),  # a latent vector has no heads to divide
    ],
)
def test_bytes_of_a_token(name: str, tensor_parallel: int, expected: int) -> None:
    assert kv_layers(shape_of(name), tensor_parallel).token_bytes == expected


def test_fp8_halves_the_cache() -> None:
    half, whole = (kv_layers(shape_of("Qwen3-8B"), item_bytes=width).token_bytes for width in (1, 2))
    assert half * 2 == whole


def test_windows_stop_growing() -> None:
    layers = kv_layers(shape_of("Olmo-3-1025-7B"))  # 8 layers see everything, 24 a window of 4096
    assert layers.sequence_bytes(4096) == 4096 * 512 * 1024
    grown = layers.sequence_bytes(65536) - layers.sequence_bytes(4096)
    assert grown == (65536 - 4096) * 8 * layers.layer_token_bytes


def test_linear_layers_keep_a_state_of_fixed_size() -> None:
    layers = kv_layers(shape_of("Qwen3-Next-80B-A3B"))
    assert (layers.full_layers, layers.linear_layers) == (12, 36)
    matrix, window = 32 * 128 * 128 * 4, (32 * 128 + 2 * 16 * 128) * 3 * 2
    assert layers.linear_state_bytes == matrix + window
    assert layers.sequence_bytes(2) - layers.sequence_bytes(1) == 12 * layers.layer_token_bytes


def test_forward_flops_are_two_a_matrix_parameter_and_the_scores() -> None:
    llama = shape_of("Llama-3.1-8B")
    matrices = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 128256 * 4096
    norms = 2 * (65 * 4096)  # counted as parameters, though no product: one in 30 000
    scores = 2 * 2 * 4096 * 1000 * 32
    assert forward_flops_per_token(llama, context=1000) == 2 * matrices + norms + scores
    assert forward_flops_per_token(llama, 1000, head=False) == pytest.approx(
        forward_flops_per_token(llama, 1000) - 2 * 128256 * 4096
    )


def test_training_costs_three_passes_or_four() -> None:
    qwen = shape_of("Qwen3-8B")
    forward = forward_flops_per_token(qwen, context=2048)
    assert training_flops_per_token(qwen, length=4096) == 3 * forward


def test_only_active_experts_cost_flops() -> None:
    sparse, dense = shape_of("Qwen3-30B-A3B"), shape_of("Qwen3-32B")
    ratio = forward_flops_per_token(sparse, 1) / forward_flops_per_token(dense, 1)
    assert 0.08 < ratio < 0.11


def test_tied_head_is_computed_though_it_is_stored_once() -> None:
    tied = shape_of("Qwen3-0.6B")
    assert forward_flops_per_token(tied, 1) - forward_flops_per_token(tied, 1, head=False) == 2 * 151936 * 1024
