"""A cluster's questions on the way in, carried from the thread that connects to whoever shows them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from rltui.cluster.transport import NeedsAttentionError

if TYPE_CHECKING:
    from rltui.cluster.prompts import Question

PATIENCE_S = 600.0
"""How long an answer is waited for; servers end the connection sooner."""


class PendingQuestion:
    """A question, and the place for its answers."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self._answers: tuple[str, ...] | None = None
        self._given = threading.Event()

    def answer(self, answers: tuple[str, ...] | None) -> None:
        """Give the answers, one a field; None where the user would not."""
        if not self._given.is_set():
            self._answers = answers
            self._given.set()

    def wait(self, timeout_s: float = PATIENCE_S) -> tuple[str, ...] | None:
        """The answers once they are given; None where there are none."""
        return self._answers if self._given.wait(timeout_s) else None


class Door:
    """A prompter (``rltui.cluster.prompts``) that hands each question over and waits.

    Args:
        show: Shows the question to the user and answers it later; called in the connecting thread.
    """

    attended = True

    def __init__(self, show: Callable[[PendingQuestion], None]) -> None:
        self._show = show

    def ask(self, question: Question) -> tuple[str, ...]:
        """Hand the question over and wait for the answers.

        Raises:
            NeedsAttentionError: The user would not answer, or did not in time.
        """
        pending = PendingQuestion(question)
        self._show(pending)
        answers = pending.wait()
        if answers is None:
            raise NeedsAttentionError(f"You did not answer {question.title}.", "Press a in the cockpit to be asked.")
        return answers
