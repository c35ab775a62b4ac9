"""``rltui mem`` of a model by itself: its figures, and where it fits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rltui.cli.main import main
from rltui.hardware.gpus import find_gpu
from rltui.hardware.models import find_model, known_model
from rltui.memory.model_sheet import ModelSheet, model_sheet

CONFIG = {
    "model_type": "llama", "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 8192, "num_hidden_layers": 16, "vocab_size": 128256, "tie_word_embeddings": True,
}  # fmt: skip


def sheet(name: str, card: str = "H100-SXM-80GB") -> ModelSheet:
    model, gpu = known_model(name), find_gpu(card)
    assert model is not None
    assert gpu is not None
    return model_sheet(model, gpu)


def test_figures_of_a_dense_model() -> None:
    found = sheet("Qwen3-8B")
    assert found.parameters == 8_190_735_360
    assert found.weights_gib["16 bits"] == pytest.approx(15.28, rel=0.01)  # vLLM's log: 15.27
    assert found.token_bytes == 147_456
    assert found.sequence_gib[32768] == pytest.approx(4.5)
    assert 131072 not in found.sequence_gib  # longer than it was made for


def test_states_of_training_decide_the_gpus() -> None:
    full, lora, engine = sheet("Qwen3-8B").fits
    assert (full.what, full.gpus) == ("full training", 2)
    assert (lora.what, lora.gpus) == ("LoRA", 1)
    assert (engine.what, engine.gpus) == ("engine", 1)


def test_a_model_too_large_for_one_node_says_so() -> None:
    assert sheet("GLM-5").fits[2].gpus is None


def test_window_and_state_are_no_tokens() -> None:
    gemma, nemotron = sheet("gemma-4-31B"), sheet("Nemotron-3-Super-120B-A12B")
    assert gemma.sequence_gib[131072] < gemma.token_bytes * 131072 / 2**30 / 4
    assert nemotron.sequence_gib[8192] > nemotron.token_bytes * 8192 / 2**30


def test_a_short_model_has_its_longest_sequence() -> None:
    assert list(sheet("TinyLlama-1.1B").sequence_gib) == [2048]


def test_verb_takes_a_config_and_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    for word in (tmp_path, tmp_path / "config.json"):
        assert main(["mem", str(word), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["parameters"] == 1_235_814_400


@pytest.mark.parametrize("name", ["hf:Qwen/Qwen3-8B", "hf:Qwen3-8B", "Qwen/Qwen3-8B", "Qwen3-8B"])
def test_verb_of_a_known_model(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mem", name]) == 0
    shown = capsys.readouterr().out
    assert "8.19 B parameters" in shown
    assert "45.8 of it optimizer" in shown
    assert "roles.learner.model=Qwen3-8B" in shown


def test_a_model_outside_the_table_is_named_by_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The word that the sheet gives for a layout must be found: a name that no table has is not."""
    folder = tmp_path / "Unheard-Of-1B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    assert main(["mem", str(folder)]) == 0
    word = capsys.readouterr().out.partition("rltui mem PRESET ")[2].split()[0]
    assert word == f"roles.learner.model={folder}"
    assert find_model(word.partition("=")[2]) is not None
    assert main(["mem", str(folder), "train.steps=3"]) == 2
    assert word in capsys.readouterr().err


def test_a_name_that_is_nearly_a_models_is_answered_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mem", "Qwen3-7B"]) == 2
    told = capsys.readouterr().err
    assert "If it is a model: the nearest known are" in told
    assert "Qwen3-8B" in told
    assert main(["mem", "verl-ppo"]) == 2
    assert "nearest known" not in capsys.readouterr().err


def test_on_a_terminal_lines_break_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["mem", "verl-ppo/ppo-2x8-split", "roles.learner.model=Qwen/Qwen3-32B"]
    main(words)
    whole = capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    main(words)
    broken = capsys.readouterr().out
    assert max(map(len, whole.splitlines())) > 80 >= max(map(len, broken.splitlines()))
    assert broken.split() == whole.split()


@pytest.mark.parametrize("words", [["--gpu", "H1000"], ["train.steps=3"]])
def test_what_does_not_go_with_a_model_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mem", "hf:Qwen/Qwen3-8B", *words]) == 2
    assert "rltui:" in capsys.readouterr().err
