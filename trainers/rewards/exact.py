"""The reward for a right answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainers.rewards.answers import Answer


def exact_reward(text: str, answer: str, stopped: bool) -> float:
    """1.0 where ``text`` is ``answer`` and the sample ended by itself (``stopped``), else 0.0."""
    return float(stopped and text == answer)


class Exact:
    """Compares with the answer, or has the task grade where it can."""

    def score(self, answers: Sequence[Answer]) -> list[float]:
        """1 or 0 for each answer, or the task's own grade."""
        return [
            exact_reward(answer.text, answer.prompt.answer, answer.stopped)
            if answer.prompt.grade is None
            else answer.prompt.grade(answer.text)
            for answer in answers
        ]

    def close(self) -> None:
        """There is nothing to end."""


class Nothing:
    """No reward: 0 for every answer."""

    def score(self, answers: Sequence[Answer]) -> list[float]:
        """As many zeros as there are answers."""
        return [0.0] * len(answers)

    def close(self) -> None:
        """There is nothing to end."""
