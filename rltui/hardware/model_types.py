"""What a model type of Hugging Face implies that its ``config.json`` does not say."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


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
        biased: Every matrix of a layer has biases, and every norm.
        norm_bias: Every norm has biases, but no matrix.
        head_bias: As in Architecture.
        mamba: Mamba-2 layers take the place of attention in some layers (``instead``), or are in all (``beside``).
        one_thing: A layer is attention, Mamba, experts or a dense network, and nothing else (Nemotron-H).
        shares_one: One shared expert as wide as a routed one.
        wide_windows: Layers with a window have twice the key and value heads of the others (MiMo-V2).
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
    biased: bool = False
    norm_bias: bool = False
    head_bias: bool = False
    mamba: Literal["", "instead", "beside"] = ""
    one_thing: bool = False
    shares_one: bool = False
    wide_windows: bool = False


_BIASED = Traits(plain_mlp=True, biased=True)
_QWEN2 = Traits(qkv_bias=True, output_bias=False)
_QWEN3 = Traits(qk_norm="head")
_QWEN3_NEXT = Traits(qk_norm="head", gated_query=True, shared_gate=True)
_GEMMA3 = Traits(tied=True, qk_norm="head", norms=4, window_pattern=6)
GEMMA4 = Traits(tied=True, qk_norm="head", norms=4, routing_bias=True)
_MIMO_V2 = Traits(routing_bias=True, wide_windows=True)
_MINIMAX_M3 = Traits(qk_norm="head", routing_bias=True)
_OLMO2 = Traits(qk_norm="full")
_DEEPSEEK = Traits(output_bias=True, routing_bias=True)
_COHERE = Traits(tied=True, norms=1)
_HUNYUAN = Traits(qk_norm="head", output_bias=False)
_LFM2 = Traits(tied=True, qk_norm="head", routing_bias=True)
LLAMA = Traits()

TRAITS: dict[str, Traits] = {
    "afmoe": Traits(qk_norm="head", norms=4, gated_query=True, routing_bias=True),
    "apertus": Traits(qk_norm="head", plain_mlp=True),
    "arcee": Traits(plain_mlp=True),
    "bailing_moe_v2": Traits(routing_bias=True),
    "bamba": Traits(mamba="instead"),
    "cohere": _COHERE,
    "cohere2": _COHERE,
    "cohere2_moe": Traits(tied=True, norms=1, experts_everywhere=True),
    "cwm": LLAMA,
    "deepseek_v2": Traits(),
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "deepseek_v4": Traits(routing_bias=True),
    "dots1": Traits(qk_norm="head", output_bias=False, routing_bias=True),
    "ernie4_5": Traits(tied=True),
    "ernie4_5_moe": Traits(tied=True, routing_bias=True),
    "exaone4": Traits(qk_norm="head"),
    "exaone_moe": Traits(qk_norm="head", routing_bias=True),
    "falcon_h1": Traits(mamba="beside"),
    "flex_olmo": Traits(qk_norm="full", experts_everywhere=True),
    "gemma": Traits(tied=True),
    "gemma2": Traits(tied=True, norms=4, window_pattern=2),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gemma4": GEMMA4,
    "gemma4_text": GEMMA4,
    "gemma4_unified_text": GEMMA4,
    "glm": Traits(output_bias=False),
    "glm4": Traits(output_bias=False, norms=4),
    "glm4_moe": Traits(output_bias=False, routing_bias=True),
    "glm4_moe_lite": _DEEPSEEK,
    "glm4v_text": Traits(output_bias=False, norms=4),
    "glm4v_moe_text": Traits(output_bias=False, routing_bias=True),
    "glm_moe_dsa": _DEEPSEEK,
    "gpt_neox": _BIASED,
    "gpt_oss": Traits(biased_experts=True, window_pattern=2, qkv_bias=True),
    "granite": LLAMA,
    "granitemoe": Traits(experts_everywhere=True),
    "granitemoehybrid": Traits(experts_everywhere=True, mamba="instead"),
    "granitemoeshared": Traits(experts_everywhere=True),
    "hunyuan_v1_dense": _HUNYUAN,
    "hy_v3": Traits(qk_norm="head", output_bias=False, routing_bias=True),
    "jais2": _BIASED,
    "kimi_k2": _DEEPSEEK,
    "kimi_linear": Traits(routing_bias=True),
    "lfm2": _LFM2,
    "lfm2_moe": _LFM2,
    "llama": LLAMA,
    "llama4_text": Traits(output_bias=False, shares_one=True),
    "mellum": _QWEN3,
    "minicpm3": LLAMA,
    "mimo": _QWEN2,
    "mimo_v2_flash": _MIMO_V2,
    "minimax_m2": Traits(qk_norm="full", routing_bias=True),
    "minimax_m3": _MINIMAX_M3,
    "minimax_m3_vl": _MINIMAX_M3,
    "minimax_m3_vl_text": _MINIMAX_M3,
    "ministral": Traits(qkv_bias=False, output_bias=False, window_pattern=-1),
    "ministral3": LLAMA,
    "mistral": Traits(qkv_bias=False, output_bias=False, window_pattern=-1),
    "mistral4": Traits(),
    "mixtral": Traits(qkv_bias=False, output_bias=False, experts_everywhere=True, window_pattern=-1),
    "nemotron": Traits(norm_bias=True),
    "nemotron_h": Traits(norms=1, routing_bias=True, mamba="instead", one_thing=True),
    "olmo2": _OLMO2,
    "olmo3": Traits(qk_norm="full", window_pattern=4),
    "olmo_hybrid": Traits(qk_norm="full"),
    "olmoe": Traits(qk_norm="full", experts_everywhere=True),
    "persimmon": _BIASED,
    "phi": Traits(plain_mlp=True, biased=True, head_bias=True, norms=1),
    "phimoe": Traits(norm_bias=True, experts_everywhere=True),
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
    "smollm3": LLAMA,
    "stablelm": Traits(norm_bias=True),
    "starcoder2": Traits(plain_mlp=True, biased=True, tied=True),
    "solar_open": Traits(output_bias=False, routing_bias=True),
    "vaultgemma": Traits(tied=True, window_pattern=2),
    "youtu": LLAMA,
}
