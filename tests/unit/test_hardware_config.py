"""Architectures from config.json, counted against the models that transformers builds from the same config."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest
from model_support import shape_of

from rltui.hardware.hf_config import architecture_from_config
from rltui.hardware.kv_cache import kv_layers
from rltui.hardware.model_types import TRAITS
from rltui.hardware.parameters import count_parameters
from rltui.hardware.vision_towers import tower_parameters, unknown_tower

SMALL = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 8, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 128, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1,
}  # fmt: skip
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
ROUTED = {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 1,
    "first_k_dense_replace": 2,
}  # fmt: skip
LATENT = {
    **ROUTED, "kv_lora_rank": 16, "q_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "num_key_value_heads": 4,
}  # fmt: skip
LINEAR = {
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "shared_expert_intermediate_size": 40, "head_dim": 32,
}  # fmt: skip
NEMOTRON = {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 1,
    "moe_shared_expert_intermediate_size": 40, "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 16,
    "n_groups": 2, "head_dim": 16, "layers_block_type": ["mamba", "moe", "attention", "mlp"],
}  # fmt: skip
WHOLE = {"num_key_value_heads": 4}
MAMBA = {
    "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 16, "mamba_d_conv": 4,
    "mamba_expand": 2,
}  # fmt: skip
GRANITE = {**MAMBA, "layer_types": ["mamba"] * 6 + ["attention"] * 2}
LLAMA4 = {
    "num_local_experts": 4, "intermediate_size_mlp": 160, "head_dim": 16,
    "use_qk_norm": False,
}  # fmt: skip
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("llama", "Llama", {}),
    ("llama", "Llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("mistral", "Mistral", {"head_dim": 32}),
    ("mixtral", "Mixtral", {"num_local_experts": 4}),
    ("qwen2", "Qwen2", {}),
    ("qwen2_moe", "Qwen2Moe", {**EXPERTS, "shared_expert_intermediate_size": 40, "decoder_sparse_step": 1}),
    ("qwen3", "Qwen3", {"head_dim": 32}),
    ("qwen3_moe", "Qwen3Moe", {**EXPERTS, "head_dim": 32, "mlp_only_layers": [0, 3]}),
    ("qwen3_next", "Qwen3Next", {**EXPERTS, **LINEAR}),
    ("olmo2", "Olmo2", {}),
    ("olmo3", "Olmo3", {}),
    ("olmoe", "Olmoe", {"num_experts": 8, "num_experts_per_tok": 2}),
    ("gemma2", "Gemma2", {"head_dim": 32}),
    ("phi3", "Phi3", {}),
    ("glm4", "Glm4", {"head_dim": 16, "attention_bias": True}),
    ("glm4_moe", "Glm4Moe", {**ROUTED, "head_dim": 16, "attention_bias": True, "use_qk_norm": True}),
    ("deepseek_v2", "DeepseekV2", {**LATENT, "q_lora_rank": None}),
    ("deepseek_v3", "DeepseekV3", LATENT),
    ("gpt_oss", "GptOss", {"num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": 16}),
    ("gpt_neox", "GPTNeoX", WHOLE),
    ("starcoder2", "Starcoder2", {}),
    ("phi", "Phi", {}),
    ("persimmon", "Persimmon", {**WHOLE, "qk_layernorm": False}),
    ("jais2", "Jais2", {"head_dim": 16}),
    ("afmoe", "Afmoe", {**EXPERTS, "head_dim": 16, "num_dense_layers": 2, "num_shared_experts": 2}),
    ("bamba", "Bamba", {**MAMBA, "attn_layer_indices": [2, 5]}),
    ("falcon_h1", "FalconH1", {**MAMBA, "mamba_d_ssm": 128, "mamba_rms_norm": True}),
    ("granitemoehybrid", "GraniteMoeHybrid", {**GRANITE, "num_local_experts": 4, "shared_intermediate_size": 40}),
    ("granitemoehybrid", "GraniteMoeHybrid", {**GRANITE, "num_local_experts": 0, "shared_intermediate_size": 96}),
    ("seed_oss", "SeedOss", {"attention_bias": True, "head_dim": 16}),
    ("granite", "Granite", {}),
    ("deepseek_v32", "DeepseekV32", {**LATENT, "index_n_heads": 4, "index_head_dim": 16}),
    ("glm_moe_dsa", "GlmMoeDsa", {**LATENT, "index_n_heads": 4, "index_head_dim": 16}),
    ("glm4_moe_lite", "Glm4MoeLite", LATENT),
    ("nemotron_h", "NemotronH", {**NEMOTRON, "moe_latent_size": 16}),
    ("nemotron_h", "NemotronH", {**NEMOTRON, "layers_block_type": ["mamba", "mlp", "attention", "mlp"]}),
]
CASES += [
    ("arcee", "Arcee", {}),
    ("ministral3", "Ministral3", {"head_dim": 16}),
    ("granitemoe", "GraniteMoe", {"num_local_experts": 8, "num_experts_per_tok": 2}),
    ("solar_open", "SolarOpen", {**ROUTED, "head_dim": 16, "first_k_dense_replace": 0}),
    ("ernie4_5", "Ernie4_5", {"head_dim": 16}),
    (
        "ernie4_5_moe",
        "Ernie4_5_Moe",
        {"moe_num_experts": 8, "moe_k": 2, "moe_num_shared_experts": 2, "moe_intermediate_size": 24},
    ),
    ("lfm2", "Lfm2", {"layer_types": ["conv", "full_attention"] * 4, "block_multiple_of": 16}),
    ("lfm2_moe", "Lfm2Moe", {**EXPERTS, "layer_types": ["conv", "full_attention"] * 4, "num_dense_layers": 2}),
]
WIDE = {"head_dim": 16}
CASES += [
    ("cohere", "Cohere", {}),
    ("cohere2", "Cohere2", WIDE),
    ("cohere2_moe", "Cohere2Moe", {**WIDE, "num_experts": 8, "num_experts_per_tok": 2}),
    ("cwm", "Cwm", WIDE),
    ("dots1", "Dots1", {**ROUTED, **WIDE}),
    ("exaone4", "Exaone4", WIDE),
    ("exaone_moe", "ExaoneMoe", {**EXPERTS, **WIDE, "first_k_dense_replace": 1, "num_shared_experts": 1}),
    ("flex_olmo", "FlexOlmo", {"num_experts": 8, "num_experts_per_tok": 2}),
    ("glm", "Glm", {**WIDE, "attention_bias": True}),
    ("granitemoeshared", "GraniteMoeShared", {"num_local_experts": 8, "shared_intermediate_size": 40}),
    ("hunyuan_v1_dense", "HunYuanDenseV1", WIDE),
    ("hy_v3", "HYV3", {**EXPERTS, **WIDE}),
    ("mellum", "Mellum", {**EXPERTS, **WIDE}),
    ("minicpm3", "MiniCPM3", {}),
    ("ministral", "Ministral", WIDE),
    ("mistral4", "Mistral4", LATENT),
    ("nemotron", "Nemotron", WIDE),
    ("olmo_hybrid", "OlmoHybrid", LINEAR),
    ("phimoe", "Phimoe", {"num_local_experts": 4}),
    ("smollm3", "SmolLM3", {}),
    ("stablelm", "StableLm", {}),
    ("vaultgemma", "VaultGemma", WIDE),
    ("youtu", "Youtu", {}),
]
CASES += [
    (
        "mimo_v2_flash",
        "MiMoV2Flash",
        {**ROUTED, "n_shared_experts": None, "head_dim": 24, "v_head_dim": 16, "sliding_window": 32},
    ),
    (
        "kimi_linear",
        "KimiLinear",
        {
            **EXPERTS, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
            "linear_num_heads": 4, "linear_head_dim": 16, "layer_types": ["linear_attention", "full_attention"] * 4,
            "num_shared_experts": 1,
        },
    ),
    (
        "deepseek_v4",
        "DeepseekV4",
        {
            "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "head_dim": 128,
            "num_key_value_heads": 1, "q_lora_rank": 32, "o_groups": 2, "o_lora_rank": 16, "index_n_heads": 4,
            "index_head_dim": 16, "mlp_layer_types": ["moe"] * 8,
            "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"] * 2
            + ["compressed_sparse_attention"] * 2,
        },
    ),
]  # fmt: skip
REUSED = {
    **SMALL, "head_dim": 16, "global_head_dim": 512,
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 4, "num_kv_shared_layers": 5,
}  # fmt: skip
TOWERS = {
    "Qwen2.5-VL-7B": (
        {
            "model_type": "qwen2_5_vl", "depth": 32, "hidden_size": 1280, "intermediate_size": 3420,
            "out_hidden_size": 3584,
        },
        3584,
    ),
    "Qwen2-VL-7B": (
        {"model_type": "qwen2_vl", "depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "hidden_size": 3584},
        3584,
    ),
    "Qwen3-VL-8B": (
        {
            "model_type": "qwen3_vl", "depth": 27, "hidden_size": 1152, "intermediate_size": 4304,
            "out_hidden_size": 4096, "num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24],
        },
        4096,
    ),
    "Gemma-3-4B": (
        {
            "model_type": "siglip_vision_model", "hidden_size": 1152, "num_hidden_layers": 27,
            "intermediate_size": 4304, "image_size": 896, "patch_size": 14,
        },
        2560,
    ),
}  # fmt: skip


@pytest.mark.trainers
@pytest.mark.parametrize(("module", "name", "settings"), CASES, ids=[f"{case[0]}-{i}" for i, case in enumerate(CASES)])
def test_count_is_that_of_the_model_transformers_builds(module: str, name: str, settings: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    package = f"transformers.models.{module}"
    configuration = importlib.import_module(f"{package}.configuration_{module}")
    modeling = importlib.import_module(f"{package}.modeling_{module}")
    config = getattr(configuration, f"{name}Config")(**{**SMALL, **settings})
    with torch.device("meta"):
        built = getattr(modeling, f"{name}ForCausalLM")(config)
    stored = sum(p.numel() for p in built.parameters())
    biases = ("e_score_correction_bias", "expert_bias")
    stored += sum(b.numel() for key, b in built.named_buffers() if key.endswith(biases))
    for use_diff in (False, True):
        described = json.loads(config.to_json_string(use_diff=use_diff))
        assert count_parameters(architecture_from_config(described, "small")).total == stored


@pytest.mark.trainers
def test_minimax_m3_has_dense_layers_and_indexers_in_some() -> None:
    torch = pytest.importorskip("torch")
    package = "transformers.models.minimax_m3_vl"
    configuration = importlib.import_module(f"{package}.configuration_minimax_m3_vl")
    settings = {
        "num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": 16, "index_n_heads": 2, "index_head_dim": 16,
        "dense_intermediate_size": 160, "shared_intermediate_size": 40,
        "mlp_layer_types": ["dense"] + ["sparse"] * 7, "layer_types": ["full_attention", "minimax_m3_sparse"] * 4,
    }  # fmt: skip
    config = configuration.MiniMaxM3VLTextConfig(**{**SMALL, **settings})
    with torch.device("meta"):
        built = importlib.import_module(f"{package}.modeling_minimax_m3_vl").MiniMaxM3VLForCausalLM(config)
    found = architecture_from_config(json.loads(config.to_json_string(use_diff=False)), "small")
    biases = sum(b.numel() for key, b in built.named_buffers() if key.endswith("e_score_correction_bias"))
    assert count_parameters(found).total == sum(p.numel() for p in built.parameters()) + biases
    assert kv_layers(found).token_bytes == 8 * 2 * 2 * 16 * 2 + 4 * 16 * 2
    assert not found.caveat


def test_values_narrower_than_keys_are_cached_as_they_are() -> None:
    """SGLang's log of MiMo-V2-Flash on 4 cards: 300,288 tokens in windows take 8.38 GB of keys, 5.59 of values."""
    model = shape_of("MiMo-V2-Flash")
    cached = kv_layers(model, tensor_parallel=4)
    assert (cached.full_layers, cached.sliding_layers) == (9, 39)
    assert 39 * cached.layer_token_bytes * 300_288 / 2**30 == pytest.approx(8.38 + 5.59, rel=0.001)


def test_compressed_attention_keeps_a_window_and_a_vector_of_several_tokens() -> None:
    model = shape_of("DeepSeek-V4-Flash")
    cached = kv_layers(model, tensor_parallel=8, item_bytes=1)
    assert (cached.full_layers, cached.sliding_layers, cached.window) == (41, 43, 128)
    assert cached.layer_token_bytes == 584  # fp8_ds_mla of vLLM
    assert cached.full_layers * cached.full_token_bytes == pytest.approx(
        21 * (584 + 132) / 4 + 20 * 584 / 128, rel=0.01
    )


@pytest.mark.trainers
@pytest.mark.parametrize("standardize", [False, True])
def test_gemma_4_has_the_tower_that_transformers_builds(standardize: bool) -> None:
    torch = pytest.importorskip("torch")
    configuration = importlib.import_module("transformers.models.gemma4.configuration_gemma4")
    tower = configuration.Gemma4VisionConfig(standardize=standardize)
    config = configuration.Gemma4Config(vision_config=tower)
    config.text_config.num_hidden_layers, config.text_config.num_kv_shared_layers = 2, 0
    config.text_config.layer_types = config.text_config.layer_types[:2]
    with torch.device("meta"):
        built = importlib.import_module("transformers.models.gemma4.modeling_gemma4").Gemma4Model(config)
    stored = (*built.named_parameters(), *((key, b) for key, b in built.named_buffers() if "std_" in key))
    beside = sum(each.numel() for key, each in stored if not key.startswith("language_model"))
    described = json.loads(config.to_json_string(use_diff=False))
    assert tower_parameters(described, described["text_config"]["hidden_size"]) == beside


@pytest.mark.trainers
@pytest.mark.parametrize("wide", [False, True])
def test_gemma_4_with_an_embedding_a_layer_and_reused_keys(wide: bool) -> None:
    torch = pytest.importorskip("torch")
    gemma4 = importlib.import_module("transformers.models.gemma4.modeling_gemma4")
    config = gemma4.Gemma4TextConfig(**REUSED, use_double_wide_mlp=wide)
    with torch.device("meta"):
        built = gemma4.Gemma4ForCausalLM(config)
    found = architecture_from_config(json.loads(config.to_json_string(use_diff=False)), "small")
    assert count_parameters(found).total == sum(p.numel() for p in built.parameters())
    cached = kv_layers(found)
    assert (cached.full_layers, cached.sliding_layers) == (1, 2)  # the last five attend to these three's
    assert not found.caveat


@pytest.mark.trainers
@pytest.mark.parametrize("step", [1, 2])
def test_llama_4_has_a_shared_expert_and_dense_layers_between(step: int) -> None:
    torch = pytest.importorskip("torch")
    llama4 = importlib.import_module("transformers.models.llama4.modeling_llama4")
    config = llama4.Llama4TextConfig(**{**SMALL, **LLAMA4, "interleave_moe_layer_step": step})
    with torch.device("meta"):
        built = llama4.Llama4ForCausalLM(config)
    found = architecture_from_config(json.loads(config.to_json_string(use_diff=False)), "small")
    assert count_parameters(found).total == sum(p.numel() for p in built.parameters())
    assert not found.caveat


@pytest.mark.parametrize(("name", "tower"), TOWERS.items())
def test_towers_have_the_parameters_that_checkpoints_publish(name: str, tower: tuple[dict[str, Any], int]) -> None:
    model = shape_of(name)
    assert tower_parameters({"vision_config": tower[0]}, tower[1]) == model.vision_params


@pytest.mark.trainers
@pytest.mark.parametrize(("module", "name"), [("glm4v", "Glm4v"), ("internvl", "InternVL"), ("mistral3", "Mistral3")])
def test_towers_have_the_parameters_that_transformers_builds(module: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    package = f"transformers.models.{module}"
    config = getattr(importlib.import_module(f"{package}.configuration_{module}"), f"{name}Config")()
    config.text_config.num_hidden_layers = 2
    with torch.device("meta"):
        model = importlib.import_module(f"{package}.modeling_{module}")
        built = getattr(model, f"{name}Model")(config)
    beside = sum(p.numel() for key, p in built.named_parameters() if not key.startswith("language_model"))
    described = json.loads(config.to_json_string(use_diff=False))
    assert tower_parameters(described, described["text_config"]["hidden_size"]) == beside
    assert unknown_tower(described) == ""


def test_kinds_of_value_that_nobody_expects_break_nothing() -> None:
    config = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    config |= {"intermediate_size": 128, "q_lora_rank": 8, "o_groups": 1, "o_lora_rank": 8, "index_n_heads": 1}
    odd = {"compress_ratios": [None, "4"], "index_head_dim": 8, "block_ffn_dim_multiplier": "1.0"}
    model = architecture_from_config({**config, **odd, "block_auto_adjust_ff_dim": True}, "odd")
    assert model.compressed is not None
    assert model.compressed.ratios == (0, 0)


def test_unknown_tower_is_named() -> None:
    assert unknown_tower({"vision_config": {"model_type": "moon_vit"}}) == "moon_vit"
    assert unknown_tower({"vision_config": TOWERS["Gemma-3-4B"][0]}) == ""
    assert unknown_tower({}) == ""


def test_vision_model_reads_its_text_part() -> None:
    text = {
        "model_type": "qwen3_vl_text", "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936,
    }  # fmt: skip
    config = {
        "model_type": "qwen3_vl", "tie_word_embeddings": False, "text_config": text,
        "vision_config": TOWERS["Qwen3-VL-8B"][0],
    }  # fmt: skip
    assert count_parameters(architecture_from_config(config, "vl")).total == 8_767_123_696


def test_windows_come_from_layer_types_or_the_type() -> None:
    sizes = {
        "hidden_size": 64,
        "num_hidden_layers": 12,
        "num_attention_heads": 4,
        "intermediate_size": 96,
        "vocab_size": 9,
    }
    gemma = architecture_from_config({**sizes, "model_type": "gemma3_text", "sliding_window": 512}, "g")
    assert (gemma.sliding_window, gemma.sliding_layers) == (512, 10)
    kinds = ["sliding_attention", "full_attention"] * 6
    listed = architecture_from_config(
        {**sizes, "model_type": "gpt_oss", "sliding_window": 128, "layer_types": kinds}, "o"
    )
    assert (listed.sliding_window, listed.sliding_layers) == (128, 6)
    off = architecture_from_config(
        {**sizes, "model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}, "q"
    )
    assert (off.sliding_window, off.sliding_layers) == (0, 0)


def test_ling_2_has_the_parameters_that_its_card_names() -> None:
    """Ling-mini-2.0: 16.26 billion, of which a token meets 789 million beside the embeddings."""
    config = {
        "model_type": "bailing_moe_v2", "hidden_size": 2048, "num_hidden_layers": 20, "num_attention_heads": 16,
        "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 5120, "moe_intermediate_size": 512,
        "num_experts": 256, "num_experts_per_tok": 8, "num_shared_experts": 1, "first_k_dense_replace": 1,
        "vocab_size": 157184, "use_qk_norm": True, "tie_word_embeddings": False,
    }  # fmt: skip
    found = architecture_from_config(config, "Ling-mini-2.0")
    count = count_parameters(found)
    assert count.total / 1e9 == pytest.approx(16.26, abs=0.005)
    assert (count.active - count.embedding - count.head) / 1e6 == pytest.approx(789, abs=0.5)
    assert not found.caveat


def test_unknown_type_says_how_it_was_read() -> None:
    sizes = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 96,
        "vocab_size": 9,
    }
    assert "Llama-like" in architecture_from_config({**sizes, "model_type": "brand_new"}, "x").caveat
    assert architecture_from_config({**sizes, "model_type": "llama"}, "x").caveat == ""
    assert "llama" in TRAITS
