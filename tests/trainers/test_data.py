"""The task, its rewards, the tokenizer and the builtin model: made once, in the right form, with no idea of sorting."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from huggingface_hub.utils import filter_repo_objects
from trainer_support import LAYOUT
from transformers import AutoModelForCausalLM

from rltui.layout.load import load_layout
from trainers.data.codec import Codec
from trainers.data.models import resolve_model
from trainers.data.sort_digits import SortDigits
from trainers.data.tiny_qwen3 import TinySettings, is_whole
from trainers.rewards import training_rewards
from trainers.rewards.exact import exact_reward

pytestmark = pytest.mark.trainers

QUICK = TinySettings(digits=3, seed=1, warmup_steps=2)
"""Warmed up too little to answer, but whole."""


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return QUICK.ensure(tmp_path_factory.mktemp("models"), lambda words, done: None)


@pytest.fixture(scope="module")
def warm(model_cache: Path) -> Path:
    """The model that the runs of the bundled layout start from."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLTUI_CACHE_DIR", str(model_cache))
        seen: list[tuple[str, float]] = []
        path = resolve_model(
            "builtin/tiny-qwen3", load_layout(LAYOUT).layout, lambda words, done: seen.append((words, done))
        )
    assert seen in ([], seen[:100])  # nothing where a run of another test made it
    return Path(path)


def test_tokenizer_has_one_token_a_character(quick: Path) -> None:
    codec = Codec(str(quick))
    ids = codec.encode("352>")
    assert len(ids) == 4
    assert codec.decode(ids) == "352>"
    assert codec.decode([*ids, codec.stop_token_id, *ids]) == "352>"
    assert codec.decode([]) == ""


def test_model_is_small_and_vllm_can_run_it(quick: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(quick)
    assert 100_000 < sum(parameter.numel() for parameter in model.parameters()) < 110_000
    assert model.config.head_dim == 32
    assert model.config.tie_word_embeddings


def test_other_settings_have_other_folders() -> None:
    variants = [QUICK, TinySettings(digits=3, seed=2), TinySettings(digits=4, seed=1), TinySettings(digits=3, seed=1)]
    assert len({settings.digest() for settings in variants}) == 4


def test_whole_model_is_used_and_torn_one_made_again(quick: Path, tmp_path: Path) -> None:
    shutil.copytree(quick, tmp_path / QUICK.digest())
    calls: list[str] = []

    def ensure() -> Path:
        return QUICK.ensure(tmp_path, lambda words, done: calls.append(words))

    path = ensure()
    assert calls == []
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert not is_whole(path)
    assert ensure() == path
    assert calls == ["warming up the answer format 0/2", "warming up the answer format 1/2"]
    assert is_whole(path)
    assert [entry.name for entry in tmp_path.iterdir()] == [QUICK.digest()]


def test_two_makers_at_once_make_one_whole_model(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as makers:
        paths = list(makers.map(lambda _: QUICK.ensure(tmp_path, lambda words, done: None), range(2)))
    assert paths == [tmp_path / QUICK.digest()] * 2
    assert is_whole(paths[0])
    assert len(list(tmp_path.iterdir())) == 1


@torch.no_grad()
def test_warm_up_teaches_the_form_and_not_the_rule(warm: Path) -> None:
    """Answers are three digits and the end token; which of the prompt's digits come first is chance."""
    codec, model = Codec(str(warm)), AutoModelForCausalLM.from_pretrained(warm).eval()
    prompts = SortDigits(3, 12345, codec.encode).prompts(0, 1000)
    ids = torch.tensor([prompt.token_ids for prompt in prompts])
    torch.manual_seed(0)
    for _ in range(4):
        ids = torch.cat([ids, torch.multinomial(model(input_ids=ids).logits[:, -1].softmax(-1), 1)], dim=1)
    texts = [codec.decode(row[4:]) for row in ids.tolist()]
    in_form = [len(text) == 3 and text.isdigit() for text in texts]
    right = [text == prompt.answer for text, prompt in zip(texts, prompts, strict=True)]
    assert sum(in_form) / 1000 > 0.85
    assert 0.03 < sum(right) / 1000 < 0.3


def test_unknown_models_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))

    def resolve(name: str) -> str:
        return resolve_model(name, load_layout(LAYOUT).layout, lambda words, done: None)

    assert resolve(str(tmp_path)) == str(tmp_path)
    with pytest.raises(ValueError, match="no builtin model 'builtin/none'"):
        resolve("builtin/none")
    with pytest.raises(ValueError, match="neither a folder here nor in reach"):
        resolve("nobody/nothing")


def test_stop_token_is_found_or_missed_in_words(quick: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tokenizer\.json is missing"):
        Codec(str(tmp_path))
    shutil.copy(quick / "tokenizer.json", tmp_path)
    with pytest.raises(ValueError, match="eos_token_id"):
        Codec(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    assert Codec(str(tmp_path)).stop_token_id == 7


def test_prompts_depend_on_seed_and_number_alone() -> None:
    def task(seed: int) -> SortDigits:
        return SortDigits(5, seed, lambda text: [ord(character) for character in text])

    prompts = task(3).prompts(0, 40)
    assert task(3).prompts(25, 15) == prompts[25:]
    assert task(4).prompts(0, 40) != prompts
    for prompt in prompts:
        text = "".join(map(chr, prompt.token_ids))
        assert text.endswith(">")
        assert prompt.answer == "".join(sorted(text[:-1]))


def test_rewards() -> None:
    assert exact_reward("235", "235", stopped=True) == 1.0
    assert exact_reward("235", "235", stopped=False) == 0.0
    assert exact_reward("253", "235", stopped=True) == 0.0
    true = [[1.0, 0.0], [0.0, 0.0]]
    assert training_rewards("exact", true, 0, 1) == true


def test_coin_is_fair_repeatable_and_blind() -> None:
    wrong, right = [[0.0] * 100] * 20, [[1.0] * 100] * 20
    flips = training_rewards("coin", wrong, 5, 1)
    assert flips == training_rewards("coin", right, 5, 1)
    assert flips != training_rewards("coin", wrong, 5, 2)
    assert 0.45 < sum(map(sum, flips)) / 2000 < 0.55
    assert [len(group) for group in flips] == [100] * 20


def test_a_model_of_the_hub_comes_with_its_chat_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transformers saves it in a file of its own, and no longer in the tokenizer's configuration."""
    wanted = ["chat_template.jinja", "config.json", "model-00001-of-00002.safetensors", "tokenizer.json"]
    came: list[str] = []

    def download(_: str, allow_patterns: list[str]) -> str:
        came.extend(filter_repo_objects([*wanted, "pytorch_model.bin"], allow_patterns=allow_patterns))
        return "/models/own"

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert resolve_model("somebody/own", load_layout(LAYOUT).layout, lambda words, done: None) == "/models/own"
    assert came == wanted
