"""Architecture from a Hugging Face ``config.json``.

The file leaves out what equals the default of its model type, so what is not a number in it (biases, norms, tied
embeddings) is known here by type. A type that is not known is read as a Llama-like model, which its ``caveat`` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rltui.errors import UsageError
from rltui.hardware.architecture import Architecture, Experts, LatentAttention, LinearAttention
from rltui.hardware.vision_towers import tower_parameters, unknown_tower

if TYPE_CHECKING:
    from collections.abc import Mapping

Config = dict[str, Any]


class Traits(Struct, frozen=True, kw_only=True):
    """What a model type implies.

    Attributes:
        tied: Whether the LM head is tied where the config does not say.
        qkv_bias: Biases on query, key and value projections; None: where ``attention_bias`` is set.
        output_bias: Whether ``attention_bias`` also puts one on the output projection.
        qk_norm: As in Architecture.
        norms: Norms in each layer.
        window_pattern: Every so many layers one sees everything, the others a window; 0: ``layer_types`` says.
        gated_query: As in Architecture.
        experts_everywhere: ``intermediate_size`` is the width of an expert (Mixtral).
        shared_gate: As in Experts.
        routing_bias: As in Experts.
        biased_experts: As Experts.bias.
        plain_mlp: Feed-forward networks have two matrices, not three.
    """

    tied: bool = False
    qkv_bias: bool | None = None
    output_bias: bool = True
    qk_norm: str = ""
    norms: int = 2
    window_pattern: int = 0
    gated_query: bool = False
    experts_everywhere: bool = False
    shared_gate: bool = False
    routing_bias: bool = False
    biased_experts: bool = False
    plain_mlp: bool = False


_QWEN2 = Traits(qkv_bias=True, output_bias=False)
_QWEN3 = Traits(qk_norm="head")
_QWEN3_NEXT = Traits(qk_norm="head", gated_query=True, shared_gate=True)
_GEMMA3 = Traits(tied=True, qk_norm="head", norms=4, window_pattern=6)
_GEMMA4 = Traits(tied=True, qk_norm="head", norms=4, routing_bias=True)
_OLMO2 = Traits(qk_norm="full")
_DEEPSEEK = Traits(output_bias=True, routing_bias=True)
_LFM2 = Traits(tied=True, qk_norm="head", routing_bias=True)
_LLAMA = Traits()

TRAITS: dict[str, Traits] = {
    "apertus": Traits(qk_norm="head", plain_mlp=True),
    "arcee": Traits(plain_mlp=True),
    "deepseek_v2": Traits(),
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "ernie4_5": Traits(tied=True),
    "ernie4_5_moe": Traits(tied=True, routing_bias=True),
    "gemma": Traits(tied=True),
    "gemma2": Traits(tied=True, norms=4, window_pattern=2),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gemma4": _GEMMA4,
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    "glm4": Traits(output_bias=False, norms=4),
    "glm4_moe": Traits(output_bias=False, routing_bias=True),
    "glm4_moe_lite": _DEEPSEEK,
    "glm4v_moe_text": Traits(output_bias=False, routing_bias=True),
    "glm_moe_dsa": _DEEPSEEK,
    "gpt_oss": Traits(biased_experts=True, window_pattern=2, qkv_bias=True),
    "granite": _LLAMA,
    "granitemoe": Traits(experts_everywhere=True),
    "kimi_k2": _DEEPSEEK,
    "lfm2": _LFM2,
    "lfm2_moe": _LFM2,
    "llama": _LLAMA,
    "minimax_m2": Traits(qk_norm="full", routing_bias=True),
    "ministral3": _LLAMA,
    "mistral": Traits(qkv_bias=False, output_bias=False, window_pattern=-1),
    "mixtral": Traits(qkv_bias=False, output_bias=False, experts_everywhere=True, window_pattern=-1),
    "nemotron_h": Traits(norms=1, routing_bias=True),
    "olmo2": _OLMO2,
    "olmo3": Traits(qk_norm="full", window_pattern=4),
    "olmoe": Traits(qk_norm="full", experts_everywhere=True),
    "phi3": Traits(qkv_bias=False, output_bias=False, window_pattern=-1),
    "qwen2": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen2_moe": Traits(qkv_bias=True, output_bias=False, shared_gate=True),
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_5": _QWEN3_NEXT,
    "qwen3_5_text": _QWEN3_NEXT,
    "qwen3_5_moe": _QWEN3_NEXT,
    "qwen3_5_moe_text": _QWEN3_NEXT,
    "qwen3_moe": _QWEN3,
    "qwen3_next": _QWEN3_NEXT,
    "qwen3_vl_moe_text": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "seed_oss": Traits(output_bias=False),
    "smollm3": _LLAMA,
    "solar_open": Traits(output_bias=False, routing_bias=True),
}


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
            kind = self._config.get("model_type")
            raise UsageError(
                f"{self._where} has no usable {' or '.join(keys)} (found {value!r}).",
                "Check that this is the config.json of a language model."
                if kind in TRAITS or not kind
                else f"Models of type {kind} are not understood; name a known model of like size instead.",
            )
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """Whether ``key`` is true."""
        value = self._config.get(key)
        return default if value is None else bool(value)

    def kinds(self) -> list[str]:
        """Kind of each layer, where the config lists them or, as Nemotron-H does, writes a letter for each."""
        kinds = self.get("layer_types", "layers_block_type", "hybrid_override_pattern")
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
    traits = TRAITS.get(model_type, _LLAMA)
    read = _Reader(text, where)
    hidden, heads = read.count("hidden_size", least=1), read.count("num_attention_heads", least=1)
    layers = read.count("num_hidden_layers", default=len(read.kinds()) or None, least=1)
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    experts = _experts(read, traits, layers)
    window, sliding_layers = _windows(read, traits, layers)
    bias, reused = read.flag("attention_bias"), read.count("num_kv_shared_layers", default=0)
    return Architecture(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=read.count("num_key_value_heads", default=heads),
        head_dim=read.count("head_dim", default=hidden // heads),
        ffn=_dense_width(read, traits, experts, layers),
        vocab=read.count("vocab_size", least=1),
        tied=traits.tied if tied is None else bool(tied),
        qkv_bias=bias if traits.qkv_bias is None else traits.qkv_bias,
        output_bias=(traits.output_bias and (bias or model_type == "gpt_oss")) or read.flag("attention_out_bias"),
        qk_norm=_qk_norm(read, traits),
        gated_query=traits.gated_query,
        sinks=model_type == "gpt_oss",
        mlp_matrices=2 if traits.plain_mlp or read.get("mlp_hidden_act") == "relu2" else 3,
        mlp_bias=read.flag("mlp_bias"),
        norms=traits.norms + (4 if read.flag("enable_moe_block") else 0),  # three more, and the router's scales
        attention_layers=_attention_layers(read, model_type),
        mlp_layers=read.kinds().count("mlp") if model_type == "nemotron_h" else 0,
        sliding_window=window,
        sliding_layers=sliding_layers,
        global_head_dim=read.count("global_head_dim", default=512 if traits is _GEMMA4 else 0),
        global_kv_heads=read.count("num_global_key_value_heads", default=0) if read.flag("attention_k_eq_v") else 0,
        shared_kv=read.flag("attention_k_eq_v"),
        reused_kv_layers=reused,
        reused_kv_whole=read.kinds()[layers - reused :].count("full_attention") if reused else 0,
        reused_kv_wide=read.flag("use_double_wide_mlp"),
        per_layer_dim=read.count("hidden_size_per_layer_input", default=0),
        max_position=read.count("max_position_embeddings", default=0),
        vision_params=tower_parameters(config, hidden),
        experts=experts,
        latent=_latent(read),
        linear=_linear(read, layers, model_type),
        source=where,
        caveat=_caveat(config, model_type),
    )


def _attention_layers(read: _Reader, model_type: str) -> int:
    if model_type != "nemotron_h":
        return 0
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
    if tower := unknown_tower(config):
        doubts.append(f"the tower of type {tower!r} is not counted")
    return ", ".join(doubts)


def _qk_norm(read: _Reader, traits: Traits) -> Any:
    return traits.qk_norm or ("head" if read.flag("use_qk_norm") or read.flag("qk_layernorm") else "")


def _dense_width(read: _Reader, traits: Traits, experts: Experts | None, layers: int) -> int:
    """Width of the dense networks, 0 where every layer has experts (or layers are one thing only)."""
    if experts is not None and (traits.experts_everywhere or experts.layers == layers):
        return 0
    if traits.norms == 1 and "mlp" not in read.kinds():
        return 0
    width = read.count("block_ff_dim", "intermediate_size", "ffn_hidden_size")
    if not read.flag("block_auto_adjust_ff_dim"):
        return width
    multiple = read.count("block_multiple_of", default=256, least=1)  # LFM2 states what a network of two would have
    return -(-int((read.get("block_ffn_dim_multiplier") or 1) * int(2 * width / 3)) // multiple) * multiple


def _experts(read: _Reader, traits: Traits, layers: int) -> Experts | None:
    count = read.count("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", default=0)
    if count < 2 or (traits.norms == 1 and "moe" not in read.kinds()):
        return None
    ffn = read.count("moe_intermediate_size", "intermediate_size")
    shared = read.count("moe_shared_expert_intermediate_size", "shared_expert_intermediate_size", default=0)
    if read.flag("enable_moe_block"):  # Gemma 4 has its dense network beside the experts, as others a shared one
        shared = read.count("intermediate_size")
    networks = read.get("mlp_layer_types")
    if "moe" in "".join(read.kinds()):
        with_experts = read.kinds().count("moe")
    elif isinstance(networks, list):
        with_experts = networks.count("sparse")
    else:
        first = read.count("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", default=0)
        step = read.count("decoder_sparse_step", "moe_layer_interval", default=1)
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
        shared_ffn=shared or ffn * read.count("n_shared_experts", "moe_num_shared_experts", default=0),
        shared_gate=traits.shared_gate,
        bias=traits.biased_experts,
        routing_bias=traits.routing_bias,
        latent=read.count("moe_latent_size", default=0),
    )


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
    )


def _linear(read: _Reader, layers: int, model_type: str) -> LinearAttention | None:
    if model_type == "nemotron_h":
        return LinearAttention(
            kind="mamba",
            layers=read.kinds().count("mamba") + read.kinds().count("linear_attention"),
            key_heads=read.count("n_groups"),
            value_heads=read.count("mamba_num_heads"),
            key_dim=read.count("ssm_state_size"),
            value_dim=read.count("mamba_head_dim"),
            kernel=read.count("conv_kernel", default=4),
        )
    if (convolutions := read.kinds().count("conv")) > 0:
        channels, kernel = read.count("hidden_size"), read.count("conv_L_cache", default=3)
        return LinearAttention(
            kind="conv", layers=convolutions, key_heads=0, value_heads=1, key_dim=0, value_dim=channels, kernel=kernel
        )
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


def _windows(read: _Reader, traits: Traits, layers: int) -> tuple[int, int]:
    """Window in tokens, and how many layers have it."""
    window, kinds = read.count("sliding_window", default=0), read.kinds()
    if not window or not read.flag("use_sliding_window", default=True):
        return 0, 0
    if kinds:
        sliding = kinds.count("sliding_attention")
        return (window, sliding) if sliding else (0, 0)
    pattern = read.count("sliding_window_pattern", default=0) or traits.window_pattern
    if pattern == 0:
        return 0, 0
    return window, layers if pattern < 0 else layers - layers // pattern
