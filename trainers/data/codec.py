"""Text to token ids and back, by the tokenizer file of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class Codec:
    """The tokenizer of the model at ``model_path``, read without importing transformers.

    Attributes:
        stop_token_id: The token that ends a response.

    Raises:
        ValueError: The model has no ``tokenizer.json``, or names no token that ends a response.
    """

    def __init__(self, model_path: str) -> None:
        from tokenizers import Tokenizer

        folder = Path(model_path)
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise ValueError(f"{file} is missing; save the model's fast tokenizer beside its weights")
        self._tokenizer = Tokenizer.from_file(str(file))
        self.stop_token_id = _stop_token_id(folder)

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text``, without special tokens."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ``token_ids``, special tokens written out, up to the token that ends a response."""
        ids = list(token_ids)
        if self.stop_token_id in ids:
            ids = ids[: ids.index(self.stop_token_id)]
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text


def _stop_token_id(folder: Path) -> int:
    """``eos_token_id`` of the generation config, or else of the model's; the first where there are several."""
    for name in ("generation_config.json", "config.json"):
        file = folder / name
        config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        stop = config.get("eos_token_id")
        if isinstance(stop, list) and stop:
            stop = stop[0]
        if isinstance(stop, int):
            return stop
    raise ValueError(f"neither generation_config.json nor config.json in {folder} has an eos_token_id")
