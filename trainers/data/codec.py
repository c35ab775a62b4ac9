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
        model_path: Folder of the model.
        stop_token_id: The token that ends a response.

    Raises:
        ValueError: The model has no ``tokenizer.json``, or names no token that ends a response.
    """

    def __init__(self, model_path: str) -> None:
        from tokenizers import Tokenizer

        self.model_path = model_path
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


def check_same_tokens(learner_path: str, other_path: str, kind: str) -> None:
    """Check that another role's model has the learner's tokens: ids are what they exchange.

    A larger embedding than the tokenizer needs is fine, as are tokens that only one of them knows beyond the learner's.

    Raises:
        ValueError: A token of the learner's tokenizer has another id in the other's, or none.
    """
    if learner_path == other_path:
        return
    from tokenizers import Tokenizer

    own, other = (
        Tokenizer.from_file(str(Path(path) / "tokenizer.json")).get_vocab(with_added_tokens=True)
        for path in (learner_path, other_path)
    )
    for token, number in sorted(own.items(), key=lambda item: item[1]):
        if other.get(token) != number:
            there = f"id {other[token]}" if token in other else "no id"
            raise ValueError(
                f"the {kind} has another tokenizer than the learner: token {token!r} is id {number} in {learner_path} "
                f"and has {there} in {other_path}; choose models of one family"
            )


def _stop_token_id(folder: Path) -> int:
    """``eos_token_id`` of the generation config, or else of the model's; the first where there are several."""
    for name in ("generation_config.json", "config.json"):
        file = folder / name
        config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        stop = config.get("eos_token_id") or config.get("text_config", {}).get("eos_token_id")
        if isinstance(stop, list) and stop:
            stop = stop[0]
        if isinstance(stop, int):
            return stop
    raise ValueError(f"neither generation_config.json nor config.json in {folder} has an eos_token_id")
