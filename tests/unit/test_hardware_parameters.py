"""Parameter counts against those that checkpoints publish."""

from __future__ import annotations

import pytest
from model_support import shape_of

from rltui.hardware.models import models
from rltui.hardware.parameters import count_parameters

PUBLISHED = {
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-1.5B": 1_543_714_304,
    "Qwen2.5-3B": 3_085_938_688,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-14B": 14_770_033_664,
    "Qwen2.5-32B": 32_763_876_352,
    "Qwen2.5-72B": 72_706_203_648,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-1.7B": 1_720_574_976,
    "Qwen3-4B": 4_022_468_096,
    "Qwen3-8B": 8_190_735_360,
    "Qwen3-14B": 14_768_307_200,
    "Qwen3-32B": 32_762_123_264,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Qwen3-235B-A22B": 235_093_634_560,
    "Qwen3-VL-2B": 2_127_532_032,
    "Qwen3-VL-4B": 4_437_815_808,
    "Qwen3-VL-8B": 8_767_123_696,
    "Qwen3-VL-30B-A3B": 31_070_754_032,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.2-1B": 1_235_814_400,
    "Llama-3.2-3B": 3_212_749_824,
    "LFM2-350M": 354_483_968,
    "LFM2-700M": 742_489_344,
    "LFM2-1.2B": 1_170_340_608,
    "OLMo-2-1124-7B": 7_298_617_344,
    "OLMo-2-1124-13B": 13_716_198_400,
    "OLMo-2-0325-32B": 32_234_279_936,
    "Olmo-3-1025-7B": 7_298_011_136,
    "Olmo-3-1125-32B": 32_233_522_176,
    "Gemma-3-1B": 999_885_952,
    "Gemma-3-4B": 4_300_079_472,
    "Gemma-3-12B": 12_187_325_040,
    "Gemma-3-27B": 27_432_406_640,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "DeepSeek-V3": 671_026_419_200,
    "DeepSeek-R1-Distill-Qwen-1.5B": 1_777_088_000,
    "Qwen2.5-VL-3B": 3_754_622_976,
    "Qwen2.5-VL-7B": 8_292_166_656,
    "Qwen2.5-VL-32B": 33_452_718_336,
    "Qwen2.5-VL-72B": 73_410_777_344,
    "Qwen2-VL-2B": 2_208_985_600,
    "Qwen2-VL-7B": 8_291_375_616,
    "Qwen3-Next-80B-A3B": 79_674_391_296,
    "Qwen3-Coder-480B-A35B": 480_154_875_392,
    "Qwen1.5-MoE-A2.7B": 14_315_784_192,
    "GLM-4-9B-0414": 9_400_279_040,
    "DeepSeek-V2-Lite": 15_706_484_224,
    "Mistral-7B-v0.1": 7_241_732_096,
    "Mistral-7B-v0.2": 7_241_732_096,
    "Mistral-7B-v0.3": 7_248_023_552,
    "Ministral-8B-2410": 8_019_808_256,
    "Mistral-Nemo-2407": 12_247_782_400,
    "Mistral-Small-24B-2501": 23_572_403_200,
    "Mixtral-8x7B": 46_702_792_704,
    "Llama-2-7B": 6_738_415_616,
    "Llama-2-13B": 13_015_864_320,
    "Llama-2-70B": 68_976_648_192,
    "Llama-3.1-405B": 405_853_388_800,
    "TinyLlama-1.1B": 1_100_048_384,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "phi-2": 2_779_683_840,
    "Phi-3-mini": 3_821_079_552,
    "Phi-4": 14_659_507_200,
    "Phi-4-mini": 3_836_021_760,
    "falcon-7b": 7_217_189_760,
    "SmolLM2-135M": 134_515_008,
    "SmolLM2-360M": 361_821_120,
    "SmolLM2-1.7B": 1_711_376_384,
    "SmolLM3-3B": 3_075_098_624,
    "OLMo-2-0425-1B": 1_484_916_736,
    "OLMoE-1B-7B-0924": 6_919_161_856,
    "Granite-3.1-8B": 8_170_848_256,
    "Seed-OSS-36B": 36_151_104_512,
}
"""Parameters in the safetensors index of each checkpoint, as Hugging Face shows them."""

BUILT = {
    "Qwen3.5-9B": 8_953_803_264,
    "Qwen3.5-27B": 26_895_998_464,
    "Qwen3.5-122B-A10B": 122_111_526_912,
    "Qwen3.5-397B-A17B": 396_346_350_336,
    "gemma-4-31B": 30_697_345_280,
    "gemma-4-26B-A4B": 25_233_141_760,
    "DeepSeek-V3.2": 671_877_929_216 + 58 * 256,
    "GLM-5": 743_911_199_232 + 75 * 256,
    "GLM-4.7-Flash": 29_943_390_976 + 46 * 64,
    "MiniMax-M2": 228_689_748_992 + 62 * 256,
    "DeepSeek-V4-Flash": 284_332_230_231 + 43 * 256,
    "DeepSeek-V4-Pro": 1_572_997_179_491 + 61 * 384,
    "MiMo-V2-Flash": 308_778_768_832 + 47 * 256,
    "MiniMax-M3": 426_174_565_632 + 57 * 128,
    "Kimi-Linear-48B-A3B": 49_122_675_072 + 26 * 256,
    "Nemotron-3-Super-120B-A12B": 120_668_687_360 + 40 * 512,
}
"""Text parameters of the model that transformers 5.19 builds of the configuration, and the load-balancing numbers that
it keeps as buffers: experts of each layer that has some."""


ACTIVE = {
    # Text parameters that one token meets, from the models' own reports: 3.3, 22, 37 and 32 billion.
    "Qwen3-30B-A3B": 3_353_032_704,
    "Qwen3-235B-A22B": 22_190_763_520,
    "DeepSeek-V3": 37_552_297_472,
    "gpt-oss-120b": 5_711_982_912,
}


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_count_is_the_published_one_to_the_digit(name: str, parameters: int) -> None:
    model = shape_of(name)
    assert count_parameters(model).total == parameters


@pytest.mark.parametrize(("name", "parameters"), BUILT.items())
def test_text_parameters_are_those_of_transformers_own_model(name: str, parameters: int) -> None:
    model = shape_of(name)
    assert count_parameters(model).text == parameters


@pytest.mark.parametrize(("name", "parameters"), ACTIVE.items())
def test_active_parameters_of_experts(name: str, parameters: int) -> None:
    model = shape_of(name)
    assert count_parameters(model).active == parameters


def test_table_is_wide_enough_and_its_names_are_its_own() -> None:
    names = [name.lower() for model in models() for name in (model.name, *model.aliases)]
    assert len(models()) >= 37
    assert len(names) == len(set(names))


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_parts_add_up(model) -> None:
    count = count_parameters(model)
    parts = count.embedding + count.head + count.attention + count.dense + count.routed + count.norms + count.vision
    assert count.total == parts
    assert count.shared + count.routed == count.total
    assert 0 < count.active <= count.text
    assert count.head == 0 if model.tied else count.head >= count.embedding
    assert count.largest_layer * model.layers >= count.attention + count.dense + count.routed
