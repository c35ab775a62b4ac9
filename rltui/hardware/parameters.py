"""Exact parameter counts from a model's dimensions."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct, structs

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture, CompressedAttention, LatentAttention, LinearAttention


OVERLAPPING_RATIO = 4
"""Up to so many tokens a vector, DeepSeek-V4's compressed vectors overlap and are chosen by an indexer."""


class ParameterCount(Struct, frozen=True, kw_only=True):
    """Parameters of a model, by what happens to them when the model is split.

    Attributes:
        embedding: The embedding, which is also the LM head where they are tied.
        head: The LM head where it is a matrix of its own, else 0.
        attention: Mixers (attention of any kind) of all layers.
        dense: Dense feed-forward networks and shared experts of all layers.
        routed: Routed experts of all layers.
        norms: Norms and routers of all layers, and the final norm.
        vision: Towers and projectors beside the language model.
        active: Of the language model, those that one token uses (embedding counted whole).
        largest_layer: Of the largest layer.
    """

    embedding: int
    head: int
    attention: int
    dense: int
    routed: int
    norms: int
    vision: int
    active: int
    largest_layer: int

    @property
    def text(self) -> int:
        """Parameters of the language model, without the tower that reads images."""
        return self.embedding + self.head + self.attention + self.dense + self.routed + self.norms

    @property
    def total(self) -> int:
        """Parameters of everything that a checkpoint holds."""
        return self.text + self.vision

    @property
    def shared(self) -> int:
        """Of everything but the routed experts."""
        return self.total - self.routed


@lru_cache(maxsize=512)
def count_parameters(model: Architecture) -> ParameterCount:
    """Count the parameters of ``model``.

    Checkpoints are what is counted: DeepSeek's untrained routing biases are in, rotary frequencies are not.
    """
    embedding = model.vocab * model.hidden
    mixer, linear = attention_layer(model), linear_layer(model.hidden, model.linear) if model.linear else 0
    whole = model.softmax_layers - model.sliding_layers if model.global_head_dim else 0
    wide = global_attention_layer(model) if whole else 0
    if model.compressed is not None:
        each = compressed_layers(model, model.compressed)
        mixer, attention = max(each), sum(each)
    else:
        attention = mixer * (model.softmax_layers - whole) + wide * whole - reused_projections(model)
    attention += linear * model.linear.layers if model.linear else 0
    attention += indexers(model)
    expert, shared, router = (expert_parameters(model), shared_expert(model), router_parameters(model))
    expert_layers = model.experts.layers if model.experts else 0
    experts = model.experts.count if model.experts else 0
    dense_layer = feed_forward(model, model.ffn)
    norm = model.hidden * (2 if model.norm_bias else 1)
    routed = expert_layers * experts * expert
    norms = model.layers * model.norms * norm + norm + expert_layers * router + hyper_connections(model)
    if model.per_layer_dim:
        norms += model.per_layer_dim + model.layers * norm
    idle = expert_layers * (experts - (model.experts.top_k if model.experts else 0)) * expert
    head = (0 if model.tied else embedding) + (model.vocab if model.head_bias else 0)
    dense = model.dense_layers * dense_layer + expert_layers * shared
    dense += model.reused_kv_layers * (feed_forward(model, model.widest_ffn) - dense_layer)
    dense += 3 * model.layers * model.hidden * model.per_layer_dim  # a gate and a projection each, and one for all
    by_layer = model.vocab * model.layers * model.per_layer_dim
    widest = max(mixer, wide, linear) + max(dense_layer, experts * expert + shared + router)
    return ParameterCount(
        embedding=embedding + by_layer,
        head=head,
        attention=attention,
        dense=dense,
        routed=routed,
        norms=norms,
        vision=model.vision_params,
        active=embedding + by_layer + head + attention + dense + routed + norms - idle,
        largest_layer=widest + model.norms * norm,
    )


def attention_layer(model: Architecture) -> int:
    """Parameters of one softmax attention."""
    hidden, query, kv = model.hidden, model.query_dim, model.kv_dim
    latent = model.latent
    if latent is not None:
        per_head = latent.nope_dim + latent.rope_dim
        rank = latent.q_rank
        queries = hidden * rank + rank + rank * model.heads * per_head if rank else hidden * model.heads * per_head
        down = hidden * (latent.kv_rank + latent.rope_dim) + latent.kv_rank
        up = latent.kv_rank * model.heads * (latent.nope_dim + latent.value_dim)
        out = model.heads * latent.value_dim * hidden * (2 if latent.output_gate else 1)
        return queries + down + up + out + indexer_parameters(hidden, latent)
    values = model.value_width
    matrices = hidden * query * (2 if model.gated_query else 1) + hidden * (kv + model.kv_heads * values)
    matrices += model.heads * values * hidden
    biases = (query + 2 * kv if model.qkv_bias else 0) + (hidden if model.output_bias else 0)
    norms = {"": 0, "head": 2 * model.head_dim, "full": query + kv}[model.qk_norm]
    return matrices + biases + norms + (model.heads if model.sinks else 0)


def compressed_layers(model: Architecture, attention: CompressedAttention) -> list[int]:
    """Parameters of the attention of each layer that sees compressed vectors, or its window alone (DeepSeek-V4)."""
    hidden, width, rank = model.hidden, model.head_dim, attention.q_rank
    out = attention.out_groups * attention.out_rank
    shared = hidden * rank + rank + rank * model.query_dim + hidden * width + width + model.heads
    shared += attention.out_rank * model.query_dim + out * hidden
    return [shared + _compressor(hidden, width, attention, ratio) for ratio in attention.ratios]


def _compressor(hidden: int, width: int, attention: CompressedAttention, ratio: int) -> int:
    """Few tokens a vector: vectors overlap, so there are two of each projection, and an indexer chooses among them."""
    if ratio < 2:
        return 0
    overlap = 2 if ratio <= OVERLAPPING_RATIO else 1
    found = overlap * width * (2 * hidden + ratio) + width
    if overlap == 1:
        return found
    index = attention.index_dim
    found += overlap * index * (2 * hidden + ratio) + index
    return found + attention.q_rank * attention.index_heads * index + hidden * attention.index_heads


def indexers(model: Architecture) -> int:
    """Parameters of indexers beside heads of keys and values: queries, one key, and a norm of each."""
    indexer = model.indexer
    if indexer is None:
        return 0
    return indexer.layers * (model.hidden * (indexer.heads + 1) * indexer.dim + 2 * indexer.dim)


def hyper_connections(model: Architecture) -> int:
    """Parameters that mix residual streams: twice a layer, and once where they become one before the LM head."""
    streams = model.compressed.streams if model.compressed else 1
    if streams == 1:
        return 0
    wide, mixed = streams * model.hidden, streams * (streams + 2)
    return 2 * model.layers * (mixed * (wide + 1) + 3) + streams * (wide + 1) + 1


def reused_projections(model: Architecture) -> int:
    """Parameters of the key and value projections that layers do without which attend to those of an earlier layer."""
    whole = model.reused_kv_whole
    width, heads = model.global_head_dim or model.head_dim, model.global_kv_heads or model.kv_heads
    windowed = 2 * model.hidden * model.kv_dim + model.head_dim
    return whole * (2 * model.hidden * width * heads + width) + (model.reused_kv_layers - whole) * windowed


def global_attention_layer(model: Architecture) -> int:
    """Parameters of one attention without a window, where its heads have a width of their own."""
    same = structs.replace(
        model,
        head_dim=model.global_head_dim,
        kv_heads=model.global_kv_heads or model.kv_heads,
        global_head_dim=0,
        sinks=False,
    )
    return attention_layer(same) - (same.hidden * same.kv_dim if model.shared_kv else 0)


def indexer_parameters(hidden: int, latent: LatentAttention) -> int:
    """Parameters of one layer's indexer: queries, one key with its norm, and a weight for each head."""
    heads, width = latent.index_heads, latent.index_dim
    return latent.q_rank * heads * width + hidden * (width + heads) + 2 * width if heads else 0


def linear_layer(hidden: int, linear: LinearAttention) -> int:
    """Parameters of one linear-attention layer."""
    if linear.kind == "conv":  # two gates and the input, the convolution, and the output
        return 4 * hidden * hidden + hidden * linear.kernel
    keys, values = linear.key_heads * linear.key_dim, linear.value_heads * linear.value_dim
    if linear.kind == "mamba":  # keys and values are B and C of all groups, and x
        channels = values + 2 * keys
        projection = hidden * (values + channels + linear.value_heads)
        return projection + channels * (linear.kernel + 1) + 3 * linear.value_heads + values + values * hidden
    if linear.kind == "kda":
        low_rank = linear.key_dim * (hidden + values)
        gates = low_rank + (hidden * values if linear.full_gate else low_rank) + hidden * linear.value_heads
        kept = (2 * keys + values) * linear.kernel + values + linear.value_heads + linear.value_dim
        return hidden * (2 * keys + 2 * values) + gates + kept
    projection = hidden * (2 * keys + 2 * values) + hidden * 2 * linear.value_heads
    convolution = (2 * keys + values) * linear.kernel
    return projection + convolution + 2 * linear.value_heads + linear.value_dim + values * hidden


def feed_forward(model: Architecture, width: int) -> int:
    """Parameters of one feed-forward network of ``width``."""
    bias = (model.mlp_matrices - 1) * width + model.hidden if model.mlp_bias and width else 0
    return model.mlp_matrices * model.hidden * width + bias


def expert_parameters(model: Architecture) -> int:
    """Parameters of one routed expert."""
    experts = model.experts
    if experts is None:
        return 0
    bias = (model.mlp_matrices - 1) * experts.ffn + model.hidden if experts.bias else 0
    return model.mlp_matrices * (experts.latent or model.hidden) * experts.ffn + bias


def shared_expert(model: Architecture) -> int:
    """Parameters of the shared experts of one layer, and of the projections to the routed ones' width and back."""
    experts = model.experts
    if experts is None:
        return 0
    gate = model.hidden if experts.shared_gate else 0
    return model.mlp_matrices * model.hidden * experts.shared_ffn + gate + 2 * model.hidden * experts.latent


def router_parameters(model: Architecture) -> int:
    """Parameters of one layer's router, with its bias and the one that balances loads; 0 without experts."""
    experts = model.experts
    if experts is None:
        return 0
    return experts.count * (model.hidden + experts.bias + experts.routing_bias)
