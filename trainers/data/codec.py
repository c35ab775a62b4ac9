"""Text to token ids and back, by the tokenizer file of a model."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from trainers.data.stops import end_tokens


class Codec:
    """The tokenizer of the model at ``model_path``, read without importing transformers.

    Args:
        model_path: Folder of the model.
        stop: Texts that end a response besides the model's end tokens; an added token of the tokenizer counts as one.

    Attributes:
        model_path: Folder of the model.
        stop_token_ids: Tokens that end a response.
        stop_texts: Texts that do.

    Raises:
        ValueError: The model has no ``tokenizer.json``, or names no token that ends a response.
    """

    def __init__(self, model_path: str, stop: Sequence[str] = ()) -> None:
        from tokenizers import Tokenizer

        self.model_path = model_path
        folder = Path(model_path)
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise ValueError(f"{file} is missing; save the model's fast tokenizer beside its weights")
        self._tokenizer = Tokenizer.from_file(str(file))
        added = {token.content: number for number, token in self._tokenizer.get_added_tokens_decoder().items()}
        named = (added[text] for text in stop if text in added)
        self.stop_token_ids = tuple(dict.fromkeys((*end_tokens(folder, self._tokenizer), *named)))
        self.stop_texts = tuple(text for text in stop if text not in added)

    @property
    def stop_token_id(self) -> int:
        """The token that an answer is ended with where we write one: the tokenizer's own."""
        return self.stop_token_ids[0]

    @functools.cached_property
    def longest_token(self) -> int:
        """Most characters of a token."""
        return max(map(len, self._tokenizer.get_vocab(with_added_tokens=True)))

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of ``text``; with ``special``, between the tokens that the tokenizer puts around a text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=special).ids
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ``token_ids``, special tokens written out, up to a token that ends a response."""
        return self.transcript(list(takewhile(lambda token: token not in self.stop_token_ids, token_ids)))

    def transcript(self, token_ids: Sequence[int]) -> str:
        """Text of ``token_ids`` to the last one, special tokens written out."""
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=False)
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
