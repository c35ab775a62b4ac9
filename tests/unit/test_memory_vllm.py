"""The KV pool's arithmetic against vLLM's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rltui.hardware.kv_cache import kv_layers
from rltui.hardware.models import known_model
from rltui.memory.estimate import GIB
from rltui.memory.kv_pool import capacity

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


def vllm_tokens(name: str, tensor_parallel: int, length: int, in_flight: int) -> int:
    """Tokens that vLLM makes of 20 GiB."""
    import torch
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec
    from vllm.v1.kv_cache_layout import KVCacheLayout

    model = known_model(name)
    assert model is not None
    layers = kv_layers(model, tensor_parallel)
    heads = max(1, -(-model.kv_heads // tensor_parallel))
    size: dict[str, Any] = {"block_size": 16, "dtype": torch.bfloat16}
    if model.latent:
        full: Any = MLAAttentionSpec(num_kv_heads=1, head_size=model.latent.kv_rank + model.latent.rope_dim, **size)
    else:
        full = FullAttentionSpec(num_kv_heads=heads, head_size=model.head_dim, **size)
    specs = {f"full.{i}": full for i in range(layers.full_layers)}
    if layers.sliding_layers:
        window = SlidingWindowSpec(
            num_kv_heads=heads, head_size=model.head_dim, sliding_window=model.sliding_window, **size
        )
        specs |= {f"window.{i}": window for i in range(layers.sliding_layers)}
    config: Any = SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=length),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1, prefill_context_parallel_size=1),
        cache_config=SimpleNamespace(get_resolved_kv_cache_layout=lambda: KVCacheLayout.LBHNC),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        attention_config=SimpleNamespace(hisparse_config=None),
        max_in_flight_tokens=in_flight,
        speculative_config=None,
    )
    groups = kv_cache_utils.get_kv_cache_groups(config, specs)
    blocks = 20 * GIB // kv_cache_utils._pool_bytes_per_block(config, groups)
    needed = sum(
        -(-group.kv_cache_spec.max_memory_usage_bytes(config) // group.kv_cache_spec.page_size_bytes)
        for group in groups
    )
    return int(blocks / needed * length)


@pytest.mark.parametrize("name", ["Qwen3-8B", "DeepSeek-V3", "Gemma-3-27B", "gpt-oss-120b", "Olmo-3-1025-7B"])
def test_tokens_are_vllms_to_the_token(name: str) -> None:
    model = known_model(name)
    assert model is not None
    for tensor_parallel, length, in_flight in ((1, 4096, 8192), (2, 32768, 8192), (1, 131072, 32768)):
        pool = capacity(kv_layers(model, tensor_parallel), 20 * GIB, length, in_flight, 16)
        assert pool.tokens == vllm_tokens(name, tensor_parallel, length, in_flight)
