"""Bytes of key/value cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.hardware.parameters import OVERLAPPING_RATIO

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture, CompressedAttention, LatentAttention

ROPE_DIM = 64
"""Width of the positions in a compressed vector of DeepSeek-V4."""

SCALED = 128
"""Numbers in fp8 that share a scale."""


class KvLayers(Struct, frozen=True, kw_only=True):
    """What one GPU keeps for each sequence, by kind of layer.

    Attributes:
        full_layers: Layers that keep every token.
        sliding_layers: Layers that keep a window.
        window: Tokens of the window.
        layer_token_bytes: Bytes of one token in one layer on one GPU.
        full_token_bytes: The same in a layer that keeps every token.
        linear_layers: Layers with a state of fixed size.
        linear_state_bytes: Bytes of one such state on one GPU.
    """

    full_layers: int
    sliding_layers: int
    window: int
    layer_token_bytes: int
    full_token_bytes: int
    linear_layers: int
    linear_state_bytes: int

    @property
    def token_bytes(self) -> int:
        """Bytes of one more token of a sequence that is shorter than the window."""
        return self.full_layers * self.full_token_bytes + self.sliding_layers * self.layer_token_bytes

    def sequence_bytes(self, tokens: int) -> int:
        """Bytes of one sequence of ``tokens`` tokens, without the rounding to blocks."""
        seen = min(tokens, self.window) if self.sliding_layers else 0
        growing = self.full_layers * tokens * self.full_token_bytes
        return (
            growing + self.sliding_layers * seen * self.layer_token_bytes + self.linear_layers * self.linear_state_bytes
        )


def kv_layers(model: Architecture, tensor_parallel: int = 1, item_bytes: float = 2) -> KvLayers:
    """Return what one of ``tensor_parallel`` GPUs caches.

    Heads are divided among GPUs, and copied where there are more GPUs than heads. A latent vector (MLA) has no heads:
    every GPU keeps all of it.

    Args:
        model: The model.
        tensor_parallel: GPUs that share one replica.
        item_bytes: Bytes of a number in the cache: 2 for bf16, 1 for fp8.
    """
    if model.compressed is not None:
        return _compressed_layers(model, model.compressed, item_bytes)
    if model.latent is not None:
        layer_token_bytes = full_token_bytes = latent_token_bytes(model.latent, item_bytes)
    else:
        values = model.value_head_dim
        layer_token_bytes = _heads_token_bytes(model.kv_heads, model.head_dim, values, tensor_parallel, item_bytes)
        heads, width = model.global_kv_heads or model.kv_heads, model.global_head_dim or model.head_dim
        full_token_bytes = _heads_token_bytes(heads, width, values, tensor_parallel, item_bytes)
        if model.indexer is not None:
            full_token_bytes += model.indexer.layers * model.indexer.dim * item_bytes / model.softmax_layers
    sliding = min(model.sliding_layers, model.softmax_layers)
    return KvLayers(
        full_layers=model.softmax_layers - sliding - model.reused_kv_whole,
        sliding_layers=sliding - (model.reused_kv_layers - model.reused_kv_whole),
        window=model.sliding_window,
        layer_token_bytes=int(layer_token_bytes),
        full_token_bytes=int(full_token_bytes),
        linear_layers=model.linear.layers if model.linear else 0,
        linear_state_bytes=_linear_state_bytes(model, tensor_parallel),
    )


def _heads_token_bytes(heads: int, width: int, values: int, tensor_parallel: int, item_bytes: float) -> float:
    return max(1, -(-heads // tensor_parallel)) * (width + (values or width)) * item_bytes


def _compressed_layers(model: Architecture, attention: CompressedAttention, item_bytes: float) -> KvLayers:
    """DeepSeek-V4's: every layer has a window of vectors, most have one vector of several tokens for all the others.

    A layer that an indexer belongs to keeps its fp8 key and scale for each vector, too. In fp8 a vector is 448 bytes
    without positions, 128 with them and 8 of scales (``fp8_ds_mla``: 584).
    """
    rope = 2 * ROPE_DIM
    vector = model.head_dim * item_bytes if item_bytes >= 2 else model.head_dim - ROPE_DIM + rope + model.head_dim // 64
    index = attention.index_dim + attention.index_dim // SCALED * 4
    compressed = [ratio for ratio in attention.ratios if ratio > 1]
    each = sum((vector + (index if ratio <= OVERLAPPING_RATIO else 0)) / ratio for ratio in compressed)
    return KvLayers(
        full_layers=len(compressed),
        sliding_layers=model.layers,
        window=model.sliding_window,
        layer_token_bytes=int(vector),
        full_token_bytes=round(each / max(1, len(compressed))),
        linear_layers=0,
        linear_state_bytes=0,
    )


def latent_token_bytes(latent: LatentAttention, item_bytes: float) -> float:
    """Bytes of one token in one layer: the latent vector with its positions, and the indexer's key where there is one.

    vLLM keeps index keys in fp8 with a float32 scale for 128 numbers (``DeepseekV32IndexerCache``), and beside an
    indexer an fp8 latent vector with float32 scales too and its positions in 16 bits (``fp8_ds_mla``: 656 bytes).
    """
    vector: float = (latent.kv_rank + latent.rope_dim) * item_bytes
    if not latent.index_dim:
        return vector
    if item_bytes < 2:
        vector = latent.kv_rank + latent.kv_rank // SCALED * 4 + 2 * latent.rope_dim
    return vector + latent.index_dim + latent.index_dim // SCALED * 4


def _linear_state_bytes(model: Architecture, tensor_parallel: int) -> int:
    """State of one linear layer: the recurrent matrix in float32 and the convolution's last inputs in bf16."""
    linear = model.linear
    if linear is None:
        return 0
    heads = -(-linear.value_heads // tensor_parallel)
    matrix = heads * linear.key_dim * linear.value_dim * 4
    channels = linear.value_heads * linear.value_dim + 2 * linear.key_heads * linear.key_dim
    return matrix + -(-channels // tensor_parallel) * (linear.kernel - 1) * 2
