"""What a model acts in over several turns: an ``Environment`` of your own, and the helpers that it may use.

``data.environment: my_envs:Calculator`` names one; docs/rewards.md has an example. This module imports nothing but the
standard library, so that a worker starts fast.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeAlias

from trainers.environments.tools import ToolCall, parse_tool_call

__all__ = ["Environment", "Messages", "Step", "Task", "ToolCall", "parse_tool_call"]

Messages: TypeAlias = "str | list[dict[str, Any]]"
"""Messages as chat templates take them, each with ``role`` and ``content``; a text is what a user says."""


@dataclass(frozen=True)
class Task:
    """What one sample is about; all samples of a prompt get the same.

    Attributes:
        messages: What the data asks.
        answer: The right answer; empty where the data has none.
        row: The row of the dataset, as far as JSON can carry it.
        seed: Of the prompt and the run: the one source of randomness that a resumed run repeats.
    """

    messages: list[dict[str, Any]]
    answer: str = ""
    row: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    @property
    def prompt(self) -> str:
        """The text of the last message."""
        return str(self.messages[-1]["content"]) if self.messages else ""


class Step(NamedTuple):
    """What an environment makes of an answer.

    Attributes:
        messages: What the model reads next; of no use where ``done``.
        reward: Added to the sample's.
        done: Whether the sample ends here.
    """

    messages: Messages = ""
    reward: float = 0.0
    done: bool = False


class Environment:
    """One instance a sample, in a worker's process. What it raises costs its own sample only.

    It must do the same again when given the same task and answers: where its process was ended because of another
    sample, a new instance is given the answers so far.

    Attributes:
        tools: JSON schemas of functions, as chat templates take them; they become part of the prompt.
    """

    tools: ClassVar[list[dict[str, Any]]] = []

    def reset(self, task: Task) -> Messages:
        """Begin with ``task``; the messages that the prompt is made of, by default those of the data."""
        return task.messages

    def step(self, answer: str) -> Step:
        """Take the model's next answer."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what it holds."""
