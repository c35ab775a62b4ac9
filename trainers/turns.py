"""Tokens of several turns, one behind the other: a prompt, what the policy sampled, what it was told, and so on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from trainers.roles.completions import Completion


@dataclass(eq=False)
class Turns:
    """One sequence on its way.

    Attributes:
        prompt_ids: What it begins with.
        limit: Most tokens that may follow.
        said: What followed, without outcome.
        mask: Which of its tokens the policy sampled.
    """

    prompt_ids: Sequence[int]
    limit: int
    said: Completion | None = None
    mask: tuple[bool, ...] = ()

    @property
    def room(self) -> int:
        """Tokens that may still follow."""
        return self.limit - len(self.mask)

    @property
    def token_ids(self) -> list[int]:
        """All tokens so far: what the next turn reads."""
        return [*self.prompt_ids, *(self.said.token_ids if self.said else ())]

    def answer(self, turn: Completion) -> None:
        """Append what the policy sampled."""
        self.said = turn if self.said is None else _joined(self.said, turn)
        self.mask += (True,) * len(turn.token_ids)

    def hear(self, token_ids: tuple[int, ...]) -> None:
        """Append what the policy was told; its log-probabilities are nobody's."""
        assert self.said is not None
        log_probs = (*self.said.log_probs, *(0.0 for _ in token_ids))
        self.said = replace(self.said, token_ids=(*self.said.token_ids, *token_ids), log_probs=log_probs)
        self.mask += (False,) * len(token_ids)

    def whole(self, **words: Any) -> Completion:
        """All of it as one sample, with ``words`` for its other attributes."""
        assert self.said is not None
        return replace(self.said, response_mask=() if all(self.mask) else self.mask, **words)


@dataclass(eq=False)
class SamplesOfPrompts:
    """Samples of several prompts on their way.

    Attributes:
        groups: The samples of each prompt, None until they are there.
        left: Samples that are not there.
        failure: Why there will be no more.
    """

    groups: list[list[Completion | None]] = field(repr=False)
    left: int
    failure: BaseException | None = None

    @classmethod
    def begun(cls, prompts: int, samples_per_prompt: int) -> Self:
        """As many, of which none is there yet."""
        return cls([[None] * samples_per_prompt for _ in range(prompts)], prompts * samples_per_prompt)

    def take(self, place: int, number: int, sample: Completion) -> None:
        """Keep a sample: of which prompt, and which of its samples."""
        self.groups[place][number] = sample
        self.left -= 1

    def whole(self) -> list[list[Completion]]:
        """The samples of each prompt that are there."""
        return [[one for one in group if one is not None] for group in self.groups]


def _joined(before: Completion, turn: Completion) -> Completion:
    """``before`` and the turn that follows it; the weights that began it stay those of the first."""
    return replace(
        turn,
        token_ids=(*before.token_ids, *turn.token_ids),
        log_probs=(*before.log_probs, *turn.log_probs),
        weight_version=before.weight_version,
        newest_version=max(before.newest_version, turn.newest_version, turn.weight_version),
        routes=_joined_routes(before, turn),
    )


def _joined_routes(before: Completion, turn: Completion) -> NDArray[np.integer[Any]] | None:
    """Each token's when it was sampled; a turn read what was said before it once more."""
    if before.routes is None or turn.routes is None:
        return None
    return np.concatenate([before.routes, turn.routes[len(before.routes) :]])
