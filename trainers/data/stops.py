"""Where an answer ends: at tokens that the model ends its turns with, and at texts that a layout names."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any


class Stops:
    """Finds the end of answers token by token, the same in every engine.

    Args:
        token_ids: Tokens that end an answer.
        texts: Texts that end one with the token that completes them; they stay part of it.
        model_path: Folder of the tokenizer, read only where there are texts.

    Attributes:
        token_ids: The tokens.
        tail_tokens: Last tokens that tell whether an answer ends.
    """

    def __init__(self, token_ids: Collection[int], texts: Sequence[str], model_path: str) -> None:
        self.token_ids, self._texts, self._model_path = tuple(token_ids), tuple(texts), model_path
        # a token has a byte at least, so a text ends within as many tokens as it has bytes; one more may be cut in two
        self.tail_tokens = max((len(text.encode()) for text in texts), default=0) + 1

    @property
    def has_texts(self) -> bool:
        """Whether the end of an answer cannot be told from single tokens."""
        return bool(self._texts)

    def ends(self, token_ids: Sequence[int]) -> bool:
        """Whether the last of ``token_ids`` ends the answer that they are the beginning of."""
        if not token_ids:
            return False
        if token_ids[-1] in self.token_ids:
            return True
        if not self._texts:
            return False
        tail: str = self._tokenizer.decode(list(token_ids[-self.tail_tokens :]), skip_special_tokens=False)
        return any(text in tail for text in self._texts)

    def length(self, token_ids: Sequence[int]) -> int:
        """Tokens up to the first that ends the answer, which counts; all where none does."""
        if not self._texts:
            return next((n for n, token in enumerate(token_ids, 1) if token in self.token_ids), len(token_ids))
        windows = ((n, token_ids[max(0, n - self.tail_tokens) : n]) for n in range(1, len(token_ids)))
        return next((n for n, window in windows if self.ends(window)), len(token_ids))

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(Path(self._model_path) / "tokenizer.json"))


def end_tokens(folder: Path, tokenizer: Any) -> tuple[int, ...]:
    """All tokens that the model in ``folder`` ends its answers with, that of its tokenizer first.

    They are the tokenizer's ``eos_token`` and every ``eos_token_id`` of the generation config, or else of the model's:
    instruct models end a turn with another token than a text, and name it in any of these places.

    Raises:
        ValueError: There is none.
    """
    own = _read(folder / "tokenizer_config.json").get("eos_token")
    name = own.get("content") if isinstance(own, dict) else own
    found = [tokenizer.token_to_id(name)] if isinstance(name, str) else []
    for file in ("generation_config.json", "config.json"):
        config = _read(folder / file)
        named = config.get("eos_token_id")
        if named is None:
            named = config.get("text_config", {}).get("eos_token_id")
        if named is not None:
            found += named if isinstance(named, list) else [named]
            break
    ids = tuple(dict.fromkeys(token for token in found if isinstance(token, int)))
    if not ids:
        raise ValueError(
            f"neither generation_config.json, config.json nor the tokenizer in {folder} names an eos_token_id"
        )
    return ids


def _read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return content
