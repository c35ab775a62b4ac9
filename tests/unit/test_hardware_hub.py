"""A published model's config: from the machine's cache, from the table, or not at all, and then with what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rltui.errors import UsageError
from rltui.hardware.models import hub_model, known_model

CONFIG = {
    "model_type": "qwen3", "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 3072, "num_hidden_layers": 4, "vocab_size": 1000, "tie_word_embeddings": True,
}  # fmt: skip


def cache(hub: Path, repo: str) -> None:
    """Lay out what huggingface_hub keeps of a model."""
    folder = hub / f"models--{repo.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc123")
    (folder / "snapshots" / "abc123").mkdir(parents=True)
    (folder / "snapshots" / "abc123" / "config.json").write_text(json.dumps(CONFIG))


@pytest.fixture(autouse=True)
def no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HF_HUB_CACHE", "HF_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)


@pytest.mark.parametrize(
    ("variable", "below"), [("HF_HOME", "hub"), ("HF_HUB_CACHE", ""), ("XDG_CACHE_HOME", "huggingface/hub")]
)
def test_cached_config_is_read(variable: str, below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, str(tmp_path))
    cache(tmp_path / below, "some-lab/Small-1B")
    model = hub_model("hf:some-lab/Small-1B")
    assert (model.name, model.layers, model.vocab) == ("Small-1B", 4, 1000)


def test_cached_file_goes_before_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    cache(tmp_path / "hub", "Qwen/Qwen3-8B")
    assert hub_model("hf:Qwen/Qwen3-8B").layers == 4


def test_known_model_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert hub_model("hf:google/gemma-4-31B-it") is known_model("gemma-4-31B")
    assert hub_model("hf:gemma-4-31B-it") is known_model("gemma-4-31B")


def test_without_cache_and_client_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"not in this machine's cache") as raised:
        hub_model("hf:some-lab/Small-1B")
    assert "config.json" in raised.value.hint


@pytest.mark.parametrize("name", ["hf:", "hf:Small-1B", "hf:../../etc", "hf:a/b/c"])
def test_what_is_no_model_is_not_looked_for(name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a model"):
        hub_model(name)
