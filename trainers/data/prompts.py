"""What a task hands out: a prompt, and all that its answers are judged by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias


@dataclass(frozen=True)
class ImagePrompt:
    """A prompt with images, on its way to an engine.

    Attributes:
        token_ids: With as many placeholder tokens for each image as the model makes of it.
        images: Their files.
    """

    token_ids: tuple[int, ...]
    images: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.token_ids)


EnginePrompt: TypeAlias = "Sequence[int] | ImagePrompt"
"""What engines take: token ids, with images or without."""


def tokens_of(prompt: EnginePrompt) -> list[int]:
    """Token ids of a prompt for an engine."""
    return list(prompt.token_ids if isinstance(prompt, ImagePrompt) else prompt)


def images_of(prompt: EnginePrompt) -> tuple[bytes, ...]:
    """The files of the images of a prompt for an engine."""
    return prompt.images if isinstance(prompt, ImagePrompt) else ()


@dataclass(frozen=True)
class Prompt:
    """One prompt of a task.

    Attributes:
        token_ids: What the engine gets.
        answer: The text that is the right answer; empty where the task knows none.
        text: The prompt as text, for rewards that want to see it.
        grade: The task's own judgement of an answer's text, from 0 to 1; None: comparing with ``answer`` is all.
        row: The row of the dataset that the prompt came from.
        images: The files of its images, in the order of their places in ``token_ids``.
        messages: What the data asks, where it is asked in messages.
        is_chat: Whether the model reads it, and what follows, in its chat template.
        source: Name of its training set, where there are several.
        key: Names what it was made of, where the task comes back to it; else empty.
    """

    token_ids: tuple[int, ...]
    answer: str
    text: str = ""
    grade: Callable[[str], float] | None = None
    row: Mapping[str, Any] = field(default_factory=dict)
    images: tuple[bytes, ...] = ()
    messages: tuple[dict[str, Any], ...] = ()
    is_chat: bool = False
    source: str = ""
    key: str = ""

    @property
    def request(self) -> EnginePrompt:
        """The prompt as an engine gets it: token ids, and its images where it has some."""
        return ImagePrompt(self.token_ids, self.images) if self.images else list(self.token_ids)


class Task(Protocol):
    """An endless list of prompts in which number i depends on nothing but the layout, the data and i.

    So the data position of a checkpoint is one number, and a resumed run sees the prompts it would have seen.
    """

    @property
    def left_out(self) -> int:
        """Prompts left out so far because they are longer than ``lengths.prompt``."""

    @property
    def size(self) -> int | None:
        """Different prompts, which the list repeats; None: there is no end to them."""

    def prompts(self, cursor: int, count: int) -> list[Prompt]:
        """Prompts number ``cursor`` to ``cursor + count - 1``."""
