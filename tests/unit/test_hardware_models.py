"""From names and folders to architectures."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from model_support import shape_of

from rltui.errors import UsageError
from rltui.hardware.models import find_model, known_model, nearest_models, stored_bytes


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("Qwen/Qwen3-8B", "Qwen3-8B"),
        ("qwen3-8b", "Qwen3-8B"),
        ("Qwen/Qwen3-4B-Instruct-2507", "Qwen3-4B"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "Qwen3-30B-A3B"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "Qwen3-30B-A3B"),
        ("Qwen/Qwen2.5-VL-72B-Instruct-GPTQ-Int4", "Qwen2.5-VL-72B"),
        ("Qwen/Qwen2.5-Math-7B-Instruct", "Qwen2.5-7B"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("meta-llama/Llama-3.3-70B-Instruct", "Llama-3.1-70B"),
        ("deepseek-ai/DeepSeek-R1", "DeepSeek-V3"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "Qwen2.5-7B"),
        ("allenai/OLMo-2-1124-7B-Instruct", "OLMo-2-1124-7B"),
        ("allenai/OLMo-2-0325-32B-Instruct", "OLMo-2-0325-32B"),
        ("allenai/Olmo-3-7B-Think", "Olmo-3-1025-7B"),
        ("google/gemma-3-4b-it", "Gemma-3-4B"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B-v0.3"),
        ("moonshotai/Moonlight-16B-A3B-Instruct", "Moonlight-16B-A3B"),
        ("PrimeIntellect/INTELLECT-3", "GLM-4.5-Air"),
        ("builtin/tiny-qwen3", "tiny-qwen3"),
    ],
)
def test_variants_of_a_name_have_the_familys_shape(name: str, family: str) -> None:
    model = shape_of(name)
    assert model.name == family


@pytest.mark.parametrize(
    "name", ["Qwen3-7B", "gpt-5", "", "/", "Qwen/", "llama", "Qwen3-8", "Llama-3.1-8", "Qwen3.5-5B"]
)
def test_unknown_names_are_not_guessed(name: str) -> None:
    assert known_model(name) is None


def test_one_and_a_half_billion_are_not_all_alike() -> None:
    tied, untied = known_model("Qwen2.5-1.5B"), known_model("DeepSeek-R1-Distill-Qwen-1.5B")
    assert tied is not None
    assert untied is not None
    assert tied.tied
    assert not untied.tied


def test_nearest_names_are_of_the_table() -> None:
    assert "Qwen3-8B" in nearest_models("Qwen/Qwen3-7B-Instruct")
    assert nearest_models("zzzzzzzz") == []


def test_local_folder_comes_before_the_table(tmp_path: Path) -> None:
    folder = tmp_path / "Qwen3-8B"
    folder.mkdir()
    config = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 100,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    for name in (str(folder), str(folder / "config.json")):
        model = find_model(name)
        assert model is not None
        assert (model.layers, model.kv_heads, model.head_dim) == (2, 4, 16)


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", 8192),
        ("meta-llama/Llama-3.1-8B-Instruct", 131072),
        ("microsoft/Phi-3-mini-4k-instruct", 4096),
        ("microsoft/Phi-3-mini-128k-instruct", 131072),
        ("01-ai/Yi-34B", 4096),
        ("01-ai/Yi-34B-200K", 200000),
        ("Qwen/Qwen2-0.5B", 131072),
        ("Qwen/Qwen2.5-0.5B", 32768),
        ("Qwen/QwQ-32B", 40960),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", 131072),
        ("Qwen/Qwen2.5-Math-7B", 4096),
        ("Qwen/Qwen2.5-Math-1.5B-Instruct", 4096),
        ("Qwen/Qwen2.5-7B", 131072),
        ("Qwen/Qwen2.5-7B-Instruct", 32768),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 131072),
        ("Qwen/Qwen3-4B", 40960),
        ("Qwen/Qwen3-4B-Thinking-2507", 262144),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", 262144),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", 262144),
        ("Qwen/Qwen3-8B-Base", 32768),
        ("Qwen/Qwen3-30B-A3B-Base", 32768),
        ("gradientai/Llama-3-8B-Instruct-262k", 0),  # whoever lengthens a model says by how much in its config alone
    ],
)
def test_positions_are_the_checkpoints_own(name: str, positions: int) -> None:
    assert shape_of(name).max_position == positions


def test_numbers_that_python_writes_and_json_does_not_have_are_read(tmp_path: Path) -> None:
    config = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 100, "time_step_limit": [0.0, math.inf]}))
    model = find_model(str(tmp_path))
    assert model is not None
    assert model.hidden == 64


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a JSON object"),
        (b"[1, 2]", "not a JSON object"),
        (b"\xff\xfe\x00", "not a JSON object"),
        (b'{"model_type": "caf\xe9"}', "not a JSON object"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not a JSON object"),
        (b"{}", "hidden_size"),
        (b'{"hidden_size": "64"}', "hidden_size"),
        (b'{"hidden_size": -1}', "hidden_size"),
        (b'{"hidden_size": "64", "model_type": ["a"]}', "hidden_size"),
        (b'{"hidden_size": 8, "num_attention_heads": 16, "num_hidden_layers": 1}', "head_dim"),
        (b'{"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": true}', "num_hidden_layers"),
    ],
)
def test_bad_config_is_one_clear_error(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UsageError, match=words):
        find_model(str(tmp_path))


def test_a_path_that_is_not_here_is_known_by_its_last_part(tmp_path: Path) -> None:
    assert find_model("/models/Qwen3-8B/") == find_model("Qwen/Qwen3-8B")
    assert find_model("~no-such-user/models/Qwen3-8B") == find_model("Qwen/Qwen3-8B")
    (tmp_path / "Qwen3-8B").mkdir()
    with pytest.raises(UsageError, match="cannot be read"):  # it is here, and is no model
        find_model(str(tmp_path / "Qwen3-8B"))


def test_missing_folder_is_named() -> None:
    with pytest.raises(UsageError, match=r"cannot be read"):
        find_model("./no-such-model")


def test_odd_names_do_not_break_the_look_up() -> None:
    assert find_model("x" * 5000) is None
    assert find_model("a\0b") is None


TINY = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "dtype": "bfloat16",
    "intermediate_size": 128, "vocab_size": 100,
}  # fmt: skip
TINY_PARAMETERS = 2 * 100 * 64 + 2 * (4 * 64**2 + 3 * 64 * 128 + 2 * 64) + 64


def write_model(folder: Path, config: dict[str, object], metadata: dict[str, int] | bytes) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    index = metadata if isinstance(metadata, bytes) else json.dumps({"metadata": metadata, "weight_map": {}}).encode()
    (folder / "model.safetensors.index.json").write_bytes(index)
    return str(folder)


@pytest.mark.parametrize(
    ("config", "metadata", "caveat", "vision"),
    [
        ({}, {"total_size": 999}, "", 0),  # a known type needs no proof
        ({"model_type": "brand_new"}, {"total_size": 2 * TINY_PARAMETERS}, "", 0),
        ({"model_type": "brand_new"}, {"total_parameters": 2 * TINY_PARAMETERS}, f"has {TINY_PARAMETERS:,}", 0),
        ({"vision_config": {"model_type": "moon"}}, {"total_parameters": TINY_PARAMETERS + 5000}, "", 5000),
        ({"model_type": "brand_new"}, b'{"caf\xe9": 1}', "read as a Llama-like", 0),
        ({"vision_config": {"model_type": "moon"}}, {}, "tower of type 'moon' is not counted", 0),
    ],
)
def test_checkpoint_settles_what_the_config_leaves_open(
    tmp_path: Path, config: dict[str, object], metadata: dict[str, int] | bytes, caveat: str, vision: int
) -> None:
    model = find_model(write_model(tmp_path, {**TINY, **config}, metadata))
    assert model is not None
    assert caveat in model.caveat if caveat else model.caveat == ""
    assert model.vision_params == vision


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("Qwen/Qwen3-8B", None),
        ("Qwen/Qwen3-235B-A22B-FP8", (1.0, 1.0)),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", (0.53, 0.53)),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", (0.53, 0.53)),
        ("nvidia/Qwen3-30B-A3B-NVFP4", (0.5625, 0.5625)),
        ("openai/gpt-oss-120b", (2.0, 0.53125)),
        ("unsloth/gpt-oss-120b-BF16", None),
        ("deepseek-ai/DeepSeek-V4-Flash", (1.0, 0.53125)),
        ("sgl-project/DeepSeek-V4-Flash-FP8", (1.0, 1.0)),
    ],
)
def test_published_names_say_how_weights_are_stored(name: str, stored: tuple[float, float] | None) -> None:
    assert stored_bytes(name) == stored
