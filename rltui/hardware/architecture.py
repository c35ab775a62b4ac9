"""The shape of a language model, as far as parameters, KV cache and FLOPs depend on it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Experts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The mixture-of-experts part of a model.

    Attributes:
        layers: Layers that have experts instead of one feed-forward network.
        count: Experts of each such layer.
        top_k: Experts that one token visits.
        ffn: Width of one expert.
        shared_ffn: Width of all shared experts of a layer together; every token visits them.
        shared_gate: Whether a gate of ``hidden`` weights scales the shared expert.
        bias: Whether experts and router have biases (gpt-oss).
        routing_bias: Whether the router has a number for each expert: a load-balancing bias that is stored but not
            trained (DeepSeek-V3), or a scale (Gemma 4).
        latent: Width that routed experts work on where it is not ``hidden``: each such layer then projects its input
            down and their output up again (Nemotron 3 Super); 0: it is ``hidden``.
    """

    layers: int
    count: int
    top_k: int
    ffn: int
    shared_ffn: int = 0
    shared_gate: bool = False
    bias: bool = False
    routing_bias: bool = False
    latent: int = 0


class LatentAttention(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): the cache holds one latent vector a token.

    Attributes:
        kv_rank: Width of the latent vector.
        q_rank: Width of the query's latent vector; 0: queries are projected directly.
        rope_dim: Width per head that carries positions; its key part is cached beside the latent vector.
        nope_dim: Width per head of queries and keys without positions.
        value_dim: Width per head of values.
        index_heads: Heads of the indexer that chooses the tokens to attend to (DeepSeek-V3.2, GLM-5); 0: all are.
        index_dim: Width of an index head; one such key a token and layer is cached.
        output_gate: Whether the output is gated, by a projection as wide as all values (Kimi-K3).
    """

    kv_rank: int
    q_rank: int = 0
    rope_dim: int = 64
    nope_dim: int = 128
    value_dim: int = 128
    index_heads: int = 0
    index_dim: int = 0
    output_gate: bool = False


class LinearAttention(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Layers whose state does not grow with the sequence: delta nets, Mamba-2, convolutions (LFM2).

    Attributes:
        layers: How many of the model's layers they are.
        kind: ``delta`` (Qwen3-Next), ``kda`` (Kimi's, with a decay for each channel), ``mamba`` or ``conv``: a gated
            short convolution of ``value_dim`` channels and nothing else.
        key_heads: Key heads; for Mamba-2 the groups.
        value_heads: Value heads; for Mamba-2 the heads.
        key_dim: Width of a key head; for Mamba-2 the state size.
        value_dim: Width of a value head.
        kernel: Width of the causal convolution.
        full_gate: Whether the output gate of ``kda`` is one matrix, and not two of rank ``key_dim``.
    """

    layers: int
    kind: Literal["delta", "kda", "mamba", "conv"] = "delta"
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int = 4
    full_gate: bool = False


class Indexer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What chooses the tokens that some layers attend to, where keys and values have heads (MiniMax-M3).

    Attributes:
        layers: Layers that have one.
        heads: Heads of its queries.
        dim: Width of a head; one key of it a token is cached.
    """

    layers: int
    heads: int
    dim: int


class CompressedAttention(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Attention to a window and to one vector of several tokens, which is key and value at once (DeepSeek-V4).

    Attributes:
        ratios: Tokens of a vector, layer by layer; below 2: the layer has its window alone.
        q_rank: Width of the query's latent vector.
        out_groups: Groups of heads whose outputs are projected apart.
        out_rank: Width to which each group is projected before all are joined.
        index_heads: Heads of the indexer that layers with few tokens a vector have.
        index_dim: Width of an index head.
        streams: Residual streams, which each half of a layer mixes anew (hyper-connections).
    """

    ratios: tuple[int, ...]
    q_rank: int
    out_groups: int
    out_rank: int
    index_heads: int
    index_dim: int
    streams: int = 1


class Architecture(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model family member, by its dimensions.

    Attributes:
        name: The name it is known by, such as ``Qwen3-8B``.
        aliases: Further names with the same shape, without organisation.
        layers: Transformer layers.
        hidden: Width of the residual stream.
        heads: Query heads.
        kv_heads: Key and value heads.
        head_dim: Width of a head.
        value_head_dim: Width of a head's values, where it differs (MiMo-V2); 0: it does not.
        ffn: Width of the dense feed-forward network, 0 where every layer has experts.
        vocab: Rows of the embedding.
        tied: Whether the LM head is the embedding.
        head_bias: Whether the LM head has biases (phi-2).
        qkv_bias: Biases on query, key and value projections.
        output_bias: Bias on the attention's output projection.
        qk_norm: ``head``: a norm of ``head_dim`` weights for queries and for keys; ``full``: over all heads.
        gated_query: Whether the query projection is twice as wide, for an output gate (Qwen3-Next).
        sinks: Whether each head has an attention sink (gpt-oss).
        capped_scores: Whether attention scores are soft-capped by a tanh (Gemma 2).
        capped_logits: Whether logits are (Gemma 2 and 4).
        mlp_matrices: 3 for gated feed-forward networks, 2 for plain ones.
        mlp_bias: Biases in the feed-forward network.
        norms: Norms in each layer.
        norm_bias: Whether norms have biases (LayerNorm).
        attention_layers: Layers with softmax attention where they are not simply all that are not linear; 0: they are.
        mlp_layers: Layers with a dense feed-forward network where they are not simply all without experts; 0: they are.
        sliding_window: Tokens that a sliding-window layer can see.
        sliding_layers: Layers with a sliding window.
        global_head_dim: Width of a head in softmax layers without a window, where it differs (Gemma 4); 0: it does not.
        global_kv_heads: Key and value heads of those layers; 0: as many as elsewhere.
        shared_kv: Whether keys and values of those layers come from one projection.
        reused_kv_layers: The last layers, which attend to keys and values of an earlier one (Gemma 4 E2B and E4B).
        reused_kv_whole: Of those, layers without a window.
        reused_kv_wide: Whether their dense networks are twice as wide.
        per_layer_dim: Width of a second embedding, with rows of its own for each layer; 0: there is none.
        max_position: Longest sequence of the published model, in tokens.
        vision_params: Parameters of towers and projectors beside the language model.
        experts: The experts, if there are any.
        latent: Latent attention, if it has it.
        linear: Linear-attention layers, if there are any.
        compressed: Compressed attention, if it has it.
        indexer: An indexer beside heads of keys and values, if it has one.
        source: Where the dimensions are from.
        caveat: What is doubtful about them, in words; empty: nothing.
    """

    name: str
    aliases: tuple[str, ...] = ()
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    value_head_dim: int = 0
    ffn: int = 0
    vocab: int
    tied: bool = False
    head_bias: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: Literal["", "head", "full"] = ""
    gated_query: bool = False
    sinks: bool = False
    capped_scores: bool = False
    capped_logits: bool = False
    mlp_matrices: Literal[2, 3] = 3
    mlp_bias: bool = False
    norms: int = 2
    norm_bias: bool = False
    attention_layers: int = 0
    mlp_layers: int = 0
    sliding_window: int = 0
    sliding_layers: int = 0
    global_head_dim: int = 0
    global_kv_heads: int = 0
    shared_kv: bool = False
    reused_kv_layers: int = 0
    reused_kv_whole: int = 0
    reused_kv_wide: bool = False
    per_layer_dim: int = 0
    max_position: int = 0
    vision_params: int = 0
    experts: Experts | None = None
    latent: LatentAttention | None = None
    linear: LinearAttention | None = None
    compressed: CompressedAttention | None = None
    indexer: Indexer | None = None
    source: str = ""
    caveat: str = ""

    @property
    def query_dim(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_dim(self) -> int:
        """Width of all key heads together, the same for values."""
        return self.kv_heads * self.head_dim

    @property
    def value_width(self) -> int:
        """Width of a head's values."""
        return self.value_head_dim or self.head_dim

    @property
    def widest_ffn(self) -> int:
        """Width of the widest dense feed-forward network."""
        return self.ffn * (2 if self.reused_kv_wide else 1)

    @property
    def softmax_layers(self) -> int:
        """Number of layers with softmax attention, the only ones whose KV cache grows with the length."""
        return self.attention_layers or self.layers - (self.linear.layers if self.linear else 0)

    @property
    def dense_layers(self) -> int:
        """Layers with a dense feed-forward network."""
        if not self.ffn:
            return 0
        return self.mlp_layers or self.layers - (self.experts.layers if self.experts else 0)
