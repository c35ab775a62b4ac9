"""The KV pool's arithmetic, and the logits of scored prompts, against vLLM's own."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from model_support import shape_of
from torch.utils._python_dispatch import TorchDispatchMode

from rltui.hardware.kv_cache import kv_layers
from rltui.hardware.models import known_model
from rltui.memory.engine import TEACHER_BATCHED_TOKENS, prompt_logits_gib
from rltui.memory.estimate import GIB
from rltui.memory.kv_pool import capacity

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


def vllm_tokens(name: str, tensor_parallel: int, length: int, in_flight: int, *, prefixes: bool) -> int:
    """Tokens that vLLM makes of 20 GiB."""
    import torch
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, MLAAttentionSpec, SlidingWindowSpec
    from vllm.v1.kv_cache_layout import KVCacheLayout

    model = shape_of(name)
    layers = kv_layers(model, tensor_parallel)
    heads = max(1, -(-model.kv_heads // tensor_parallel))
    # A page of attention is made as large as a linear layer's state, in steps of 16 tokens.
    steps = max(1, -(-layers.linear_state_bytes // (16 * layers.layer_token_bytes)))
    size: dict[str, Any] = {"block_size": 16 * steps, "dtype": torch.bfloat16}
    values = {"head_size_v": model.value_head_dim} if model.value_head_dim else {}
    if model.latent:
        full: Any = MLAAttentionSpec(num_kv_heads=1, head_size=model.latent.kv_rank + model.latent.rope_dim, **size)
    else:
        wide = max(1, -(-(model.global_kv_heads or model.kv_heads) // tensor_parallel))
        full = FullAttentionSpec(num_kv_heads=wide, head_size=model.global_head_dim or model.head_dim, **size, **values)
    specs = {f"full.{i}": full for i in range(layers.full_layers)}
    if layers.sliding_layers:
        window = SlidingWindowSpec(
            num_kv_heads=heads, head_size=model.head_dim, sliding_window=model.sliding_window, **size, **values
        )
        specs |= {f"window.{i}": window for i in range(layers.sliding_layers)}
    if layers.linear_layers:
        state = {"shapes": ((layers.linear_state_bytes // 4,),), "dtypes": (torch.float32,)}
        mode: Any = {"block_size": full.block_size, "mamba_cache_mode": "align"} if prefixes else {"block_size": length}
        linear = MambaSpec(page_size_padded=full.page_size_bytes, **state, **mode)
        specs |= {f"linear.{i}": linear for i in range(layers.linear_layers)}
    config: Any = SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=length),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1, prefill_context_parallel_size=1),
        cache_config=SimpleNamespace(
            get_resolved_kv_cache_layout=lambda: KVCacheLayout.LBHNC,
            mamba_cache_mode="align" if prefixes else "none",
            enable_prefix_caching=prefixes,
        ),
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


ATTENTION = ("Qwen3-8B", "DeepSeek-V3", "Gemma-3-27B", "gpt-oss-120b", "Olmo-3-1025-7B", "gemma-4-31B", "MiMo-V2-Flash")
HYBRID = (
    "Qwen3.5-27B",
    "Qwen3.5-35B-A3B",
    "Nemotron-3-Nano-30B-A3B",
    "Nemotron-3-Super-120B-A12B",
    "Kimi-Linear-48B-A3B",
)


@pytest.mark.parametrize("prefixes", [False, True], ids=["", "prefixes kept"])
@pytest.mark.parametrize("name", [*ATTENTION, *HYBRID])
def test_tokens_are_vllms_to_the_token(name: str, prefixes: bool) -> None:
    model = shape_of(name)
    for tensor_parallel, length, in_flight in ((1, 4096, 8192), (2, 32768, 8192), (1, 131072, 32768)):
        pool = capacity(kv_layers(model, tensor_parallel), 20 * GIB, length, in_flight, 16, 2 if prefixes else 1)
        assert pool.tokens == vllm_tokens(name, tensor_parallel, length, in_flight, prefixes=prefixes)


class PeakBytes(TorchDispatchMode):
    """Counts the bytes of tensors that are alive at once, of those that come to be under it."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._alive = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, tuple | list) else [found]:
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self._known:
                storage = tensor.untyped_storage()
                self._known.add(storage._cdata)
                self._alive += storage.nbytes()
                self.peak = max(self.peak, self._alive)
                weakref.finalize(storage, self._forget, storage._cdata, storage.nbytes())
        return found

    def _forget(self, identity: int, nbytes: int) -> None:
        self._known.discard(identity)
        self._alive -= nbytes


@pytest.mark.parametrize(("dtype", "item_bytes"), [("bfloat16", 2.0), ("float32", 4.0)])
def test_logits_of_scored_prompts_take_what_vllms_own_code_takes(dtype: str, item_bytes: float) -> None:
    from vllm.v1.sample.sampler import Sampler

    tokens, model = 32, known_model("Qwen3-8B")
    assert model is not None
    with PeakBytes() as peak:
        logits = torch.zeros(tokens, model.vocab, dtype=getattr(torch, dtype))
        Sampler.compute_logprobs(logits)
    assert peak.peak / GIB == pytest.approx(prompt_logits_gib(model, tokens, item_bytes), rel=0.01)


def test_the_trainers_teacher_takes_the_steps_that_are_estimated() -> None:
    from trainers.roles.vllm_teacher import BATCHED_TOKENS

    assert BATCHED_TOKENS == TEACHER_BATCHED_TOKENS
