"""Architecture from a Hugging Face ``config.json``.

The file leaves out what equals the default of its model type, so what is not a number in it (biases, norms, tied
embeddings) is known here by type. A type that is not known is read as a Llama-like model, which its ``caveat`` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rltui.errors import UsageError
from rltui.hardware.architecture import (
    Architecture,
    CompressedAttention,
    Experts,
    Indexer,
    LatentAttention,
    LinearAttention,
)
from rltui.hardware.model_types import GEMMA4, LLAMA, TRAITS, Traits
from rltui.hardware.vision_towers import tower_parameters, unknown_tower

Config = dict[str, Any]

PADDED_PAGES = "its compressed cache is counted without the padding of vLLM's pages, up to twice as much in logs"


_SHARED_WIDTH = ("moe_shared_expert_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size")
_COMPRESSED = ("compressed_sparse_attention", "heavily_compressed_attention")
_LETTERS = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}


class _Reader:
    """Reads one text config, and names the key and the file where a value is missing or wrong."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self._config = config
        self._where = where

    def get(self, *keys: str) -> Any:
        """The first value that is set among ``keys``."""
        return next((self._config[key] for key in keys if self._config.get(key) is not None), None)

    def count(self, *keys: str, default: int | None = None, least: int = 0) -> int:
        """The first of ``keys`` as a number of at least ``least``, or ``default``."""
        value = self.get(*keys)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 10**12:
            kind = str(self._config.get("model_type") or "")
            raise UsageError(
                f"{self._where} has no usable {' or '.join(keys)} (found {value!r}).",
                "Check that this is the config.json of a language model."
                if kind in TRAITS or not kind
                else f"Models of type {kind} are not understood; name a known model of like size instead.",
            )
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """Whether ``key`` is true; where it is missing or null, ``default``."""
        value = self._config.get(key)
        return default if value is None else bool(value)

    def kinds(self) -> list[str]:
        """Kind of each layer, where the config lists them or, as Nemotron-H does, writes a letter for each."""
        kinds = self.get("layer_types", "layers_block_type", "hybrid_override_pattern")
        if kinds is None and isinstance(self.get("hybrid_layer_pattern"), list):
            kinds = [
                "sliding_attention" if windowed else "full_attention" for windowed in self.get("hybrid_layer_pattern")
            ]
        if isinstance(kinds, str):
            kinds = [_LETTERS.get(letter, letter) for letter in kinds]
        return [str(kind) for kind in kinds] if isinstance(kinds, list) else []


def architecture_from_config(config: Config, name: str, where: str = "config.json") -> Architecture:
    """Return the architecture that ``config`` describes.

    Args:
        config: The parsed file.
        name: What to call the model.
        where: The file, for errors.

    Raises:
        UsageError: A dimension is missing or no number.
    """
    text = _text_config(config)
    model_type = str(text.get("model_type") or config.get("model_type") or "")
    traits, read = TRAITS.get(model_type, LLAMA), _Reader(text, where)
    hidden, heads = read.count("hidden_size", least=1), read.count("num_attention_heads", least=1)
    layers = read.count("num_hidden_layers", default=len(read.kinds()) or None, least=1)
    experts = _experts(read, traits, layers)
    window, sliding_layers = _windows(read, traits, layers)
    bias, reused = traits.biased or read.flag("attention_bias"), read.count("num_kv_shared_layers", default=0)
    return Architecture(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        **_kept_heads(read, traits, heads, hidden),
        ffn=_dense_width(read, traits, experts, layers),
        vocab=read.count("vocab_size", least=1),
        tied=_tied(text, config, traits),
        head_bias=traits.head_bias,
        qkv_bias=bias if traits.qkv_bias is None else traits.qkv_bias,
        output_bias=(traits.output_bias and (bias or model_type == "gpt_oss")) or read.flag("attention_out_bias"),
        qk_norm=_qk_norm(read, traits),
        gated_query=traits.gated_query,
        sinks=model_type == "gpt_oss" or traits.wide_windows,
        capped_scores=read.flag("attn_logit_softcapping"),
        capped_logits=read.flag("final_logit_softcapping"),
        mlp_matrices=2 if traits.plain_mlp or read.get("mlp_hidden_act", "hidden_act") == "relu2" else 3,
        mlp_bias=traits.biased or read.flag("mlp_bias"),
        norm_bias=traits.biased or traits.norm_bias,
        norms=traits.norms + (4 if read.flag("enable_moe_block") else 0),  # three more, and the router's scales
        attention_layers=_attention_layers(read, traits, layers),
        mlp_layers=read.kinds().count("mlp") if traits.one_thing else 0,
        sliding_window=window,
        sliding_layers=sliding_layers,
        reused_kv_layers=reused,
        reused_kv_whole=read.kinds()[layers - reused :].count("full_attention") if reused else 0,
        reused_kv_wide=read.flag("use_double_wide_mlp"),
        per_layer_dim=read.count("hidden_size_per_layer_input", default=0),
        max_position=read.count("max_position_embeddings", "model_max_length", default=0),
        vision_params=tower_parameters(config, hidden),
        experts=experts,
        latent=_latent(read),
        linear=_linear(read, traits, layers),
        compressed=_compressed(read, layers),
        indexer=_indexer(read),
        source=where,
        caveat=_caveat(config, model_type),
    )


def _kept_heads(read: _Reader, traits: Traits, heads: int, hidden: int) -> dict[str, Any]:
    """Heads of keys and values and how wide they are, in layers with a window and in the others."""
    kv_heads, head_dim = (
        read.count("num_key_value_heads", default=heads, least=1),
        read.count("head_dim", default=hidden // heads or None, least=1),
    )
    if traits.wide_windows:
        return {
            "kv_heads": read.count("swa_num_key_value_heads", default=2 * kv_heads),
            "head_dim": head_dim,
            "value_head_dim": read.count("v_head_dim", default=0),
            "global_head_dim": head_dim,
            "global_kv_heads": kv_heads,
        }
    shared = read.flag("attention_k_eq_v")
    return {
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "global_head_dim": read.count("global_head_dim", default=512 if traits is GEMMA4 else 0),
        "global_kv_heads": read.count("num_global_key_value_heads", default=0) if shared else 0,
        "shared_kv": shared,
    }


def _tied(text: Config, config: Config, traits: Traits) -> bool:
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    return traits.tied if tied is None else bool(tied)


def _attention_layers(read: _Reader, traits: Traits, layers: int) -> int:
    if not traits.one_thing:
        return layers if traits.mamba == "beside" else 0
    return sum("attention" in kind and "linear" not in kind for kind in read.kinds())


def _text_config(config: Config) -> Config:
    """The language model's part of a config that may also describe towers."""
    thinker = config.get("thinker_config")
    if isinstance(thinker, dict):
        config = thinker
    for key in ("text_config", "llm_config", "language_config"):
        if isinstance(config.get(key), dict):
            return dict(config[key])
    return config


def _caveat(config: Config, model_type: str) -> str:
    doubts = [] if model_type in TRAITS else [f"type {model_type or 'unnamed'!r} is read as a Llama-like model"]
    if "compress_ratios" in config or "compress_rates" in config:
        doubts.append(PADDED_PAGES)
    if tower := unknown_tower(config):
        doubts.append(f"the tower of type {tower!r} is not counted")
    return ", ".join(doubts)


def _qk_norm(read: _Reader, traits: Traits) -> Any:
    return traits.qk_norm or ("head" if read.flag("use_qk_norm") or read.flag("qk_layernorm") else "")


def _dense_width(read: _Reader, traits: Traits, experts: Experts | None, layers: int) -> int:
    """Width of the dense networks, 0 where every layer has experts (or layers are one thing only)."""
    if experts is not None and (traits.experts_everywhere or experts.layers == layers):
        return 0
    if traits.one_thing and "mlp" not in read.kinds():
        return 0
    names = (
        "block_ff_dim",
        "dense_intermediate_size",
        "intermediate_size_mlp",
        "shared_intermediate_size",
        "intermediate_size",
    )
    width = read.count(*names, "ffn_hidden_size")
    if not read.flag("block_auto_adjust_ff_dim"):
        return width
    multiple = read.count("block_multiple_of", default=256, least=1)  # LFM2 states what a network of two would have
    factor = read.get("block_ffn_dim_multiplier")
    factor = factor if isinstance(factor, int | float) and factor > 0 else 1
    return -(-int(factor * int(2 * width / 3)) // multiple) * multiple


def _experts(read: _Reader, traits: Traits, layers: int) -> Experts | None:
    count = read.count("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", default=0)
    if count < 2 or (traits.one_thing and "moe" not in read.kinds()):
        return None
    ffn = read.count("moe_intermediate_size", "intermediate_size")
    shared = read.count(*_SHARED_WIDTH, default=0)
    if read.flag("enable_moe_block"):  # Gemma 4 has its dense network beside the experts, as others a shared one
        shared = read.count("intermediate_size")
    networks = read.get("mlp_layer_types")
    if "moe" in "".join(read.kinds()):
        with_experts = read.kinds().count("moe")
    elif isinstance(networks, list):
        with_experts = len(networks) - networks.count("dense")
    elif isinstance(listed := read.get("moe_layers"), list):
        with_experts = len(listed)
    elif isinstance(frequency := read.get("moe_layer_freq"), list):
        with_experts = sum(map(bool, frequency))
    else:
        first = read.count("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", default=0)
        step = read.count("decoder_sparse_step", "moe_layer_interval", "interleave_moe_layer_step", default=1)
        only = read.get("mlp_only_layers")
        dense = only if isinstance(only, list) else []
        sparse = [
            i for i in range(min(layers, 10_000)) if i >= first and i not in dense and (i + 1) % max(step, 1) == 0
        ]
        with_experts = len(sparse)
    return Experts(
        layers=with_experts,
        count=count,
        top_k=read.count("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_k", default=1),
        ffn=ffn,
        shared_ffn=shared or ffn * _shared_experts(read, traits),
        shared_gate=traits.shared_gate,
        bias=traits.biased_experts,
        routing_bias=traits.routing_bias,
        latent=read.count("moe_latent_size", "routed_expert_hidden_size", default=0),
    )


def _shared_experts(read: _Reader, traits: Traits) -> int:
    names = ("n_shared_experts", "moe_num_shared_experts", "num_shared_experts")
    return read.count(*names, default=int(traits.shares_one))


def _latent(read: _Reader) -> LatentAttention | None:
    rank = read.count("kv_lora_rank", default=0)
    if not rank:
        return None
    return LatentAttention(
        kv_rank=rank,
        q_rank=read.count("q_lora_rank", default=0),
        rope_dim=read.count("qk_rope_head_dim"),
        nope_dim=read.count("qk_nope_head_dim"),
        value_dim=read.count("v_head_dim"),
        index_heads=read.count("index_n_heads", default=0),
        index_dim=read.count("index_head_dim", default=0),
        output_gate=read.flag("mla_use_output_gate"),
    )


def _compressed(read: _Reader, layers: int) -> CompressedAttention | None:
    """DeepSeek-V4's attention; ratios are listed, or follow from the layers' kinds."""
    ratios, rates = read.get("compress_ratios"), read.get("compress_rates")
    if not isinstance(ratios, list):
        if not isinstance(rates, dict):
            return None
        ratios = [rates.get(kind, 0) if kind in _COMPRESSED else 0 for kind in read.kinds()]
    return CompressedAttention(
        ratios=tuple(int(ratio) if isinstance(ratio, int | float) else 0 for ratio in ratios[:layers]),
        q_rank=read.count("q_lora_rank"),
        out_groups=read.count("o_groups"),
        out_rank=read.count("o_lora_rank"),
        index_heads=read.count("index_n_heads"),
        index_dim=read.count("index_head_dim"),
        streams=read.count("hc_mult", default=1),
    )


def _indexer(read: _Reader) -> Indexer | None:
    """MiniMax-M3's, beside heads of keys and values; as published, or as transformers writes it."""
    published, kinds = read.get("sparse_attention_config"), read.kinds()
    if isinstance(published, dict):
        inner = _Reader(published, "sparse_attention_config")
        frequency = inner.get("sparse_attention_freq")
        layers = sum(map(bool, frequency)) if isinstance(frequency, list) else 0
        heads, dim = inner.count("sparse_num_index_heads", default=0), inner.count("sparse_index_dim", default=0)
    else:
        layers = kinds.count("minimax_m3_sparse")
        heads, dim = read.count("index_n_heads", default=0), read.count("index_head_dim", default=0)
    return Indexer(layers=layers, heads=heads, dim=dim) if layers and heads else None


def _mamba(read: _Reader, layers: int) -> LinearAttention | None:
    """Mamba-2, in ``layers`` layers where the config does not list them; softmax attention may be listed by number."""
    kinds, attention = read.kinds(), read.get("attn_layer_indices")
    if kinds:
        layers = kinds.count("mamba") + kinds.count("linear_attention")
    elif isinstance(attention, list):
        layers -= len(attention)
    if not layers:
        return None
    return LinearAttention(
        kind="mamba",
        layers=layers,
        key_heads=read.count("n_groups", "mamba_n_groups"),
        value_heads=read.count("mamba_num_heads", "mamba_n_heads"),
        key_dim=read.count("ssm_state_size", "mamba_d_state"),
        value_dim=read.count("mamba_head_dim", "mamba_d_head"),
        kernel=read.count("conv_kernel", "mamba_d_conv", default=4),
    )


def _linear(read: _Reader, traits: Traits, layers: int) -> LinearAttention | None:
    if traits.mamba:
        return _mamba(read, layers)
    if (convolutions := read.kinds().count("conv")) > 0:
        channels, kernel = read.count("hidden_size"), read.count("conv_L_cache", default=3)
        return LinearAttention(
            kind="conv", layers=convolutions, key_heads=0, value_heads=1, key_dim=0, value_dim=channels, kernel=kernel
        )
    if (found := _kda(read, layers)) is not None:
        return found
    if read.get("linear_num_value_heads") is None:
        return None
    interval = read.count("full_attention_interval", default=4) or 4
    return LinearAttention(
        layers=read.kinds().count("linear_attention") or layers - layers // interval,
        key_heads=read.count("linear_num_key_heads"),
        value_heads=read.count("linear_num_value_heads"),
        key_dim=read.count("linear_key_head_dim"),
        value_dim=read.count("linear_value_head_dim"),
        kernel=read.count("linear_conv_kernel_dim", default=4),
    )


def _kda(read: _Reader, layers: int) -> LinearAttention | None:
    """Kimi's delta attention; as published, or as transformers writes it."""
    published = read.get("linear_attn_config")
    if isinstance(published, dict):
        inner = _Reader(published, "linear_attn_config")
        linear, whole = inner.get("kda_layers"), inner.get("full_attn_layers")
        count = len(linear) if isinstance(linear, list) else layers - len(whole or ())
        heads, dim = inner.count("num_heads"), inner.count("head_dim")
        kernel, full_gate = inner.count("short_conv_kernel_size", default=4), inner.flag("use_full_rank_gate")
    else:
        count, heads = read.kinds().count("linear_attention"), read.count("linear_num_heads", default=0)
        dim, kernel = read.count("linear_head_dim", default=0), read.count("linear_conv_kernel_dim", default=4)
        full_gate = False
    if not count or not heads or not dim:
        return None
    return LinearAttention(
        kind="kda",
        layers=count,
        key_heads=heads,
        value_heads=heads,
        key_dim=dim,
        value_dim=dim,
        kernel=kernel,
        full_gate=full_gate,
    )


def _windows(read: _Reader, traits: Traits, layers: int) -> tuple[int, int]:
    """Window in tokens, and how many layers have it."""
    window, kinds = read.count("sliding_window", default=0), read.kinds()
    if not window or not read.flag("use_sliding_window", default=True):
        return 0, 0
    if isinstance(read.get("compress_ratios", "compress_rates"), (list, dict)):
        return window, layers
    if kinds:
        sliding = kinds.count("sliding_attention")
        return (window, sliding) if sliding else (0, 0)
    pattern = read.count("sliding_window_pattern", default=0) or traits.window_pattern
    if pattern == 0:
        return 0, 0
    return window, layers if pattern < 0 else layers - layers // pattern
