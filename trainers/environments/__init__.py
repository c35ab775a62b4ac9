"""What a model acts in over several turns: an ``Environment`` of your own, or an agent that asks a ``Policy``.

``data.environment: my_envs:Calculator`` names one; docs/rewards.md has an example. This module imports nothing but the
standard library, so that a worker starts fast.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeAlias

from trainers.environments.tools import ToolCall, parse_tool_call

__all__ = ["Environment", "Messages", "Policy", "PolicyError", "Step", "Task", "ToolCall", "parse_tool_call"]

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


class PolicyError(Exception):
    """The policy does not answer a request.

    Args:
        message: Why.
        code: In OpenAI's words, such as ``context_length_exceeded``.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Policy:
    """Where an agent reaches the policy, in the form of OpenAI's chat completions; for its own sample only.

    Attributes:
        base_url: As clients take it, ``http://…/v1``.
        api_key: Of this sample; worth nothing once that is over.
        model: Its name.
    """

    base_url: str
    api_key: str = field(repr=False)
    model: str

    @property
    def environment(self) -> dict[str, str]:
        """Variables that clients look at; a proxy that the node has is not for loopback."""
        names = {"OPENAI_BASE_URL": self.base_url, "OPENAI_API_KEY": self.api_key, "OPENAI_MODEL": self.model}
        passed = ",".join(filter(None, (os.environ.get("no_proxy"), os.environ.get("NO_PROXY"), "127.0.0.1")))
        return names | {"no_proxy": passed, "NO_PROXY": passed}

    def chat(self, messages: list[dict[str, Any]], **words: Any) -> dict[str, Any]:
        """The policy's next message, without a client.

        Args:
            messages: What was said, as chat templates take it.
            words: What else the request says, such as ``tools`` or ``max_tokens``.

        Raises:
            PolicyError: The sample is over, or there is no room for another answer.
        """
        import urllib.error
        import urllib.request

        body = json.dumps({"model": self.model, "messages": messages, **words}).encode()
        headers = {"Authorization": f"Bearer {self.api_key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.base_url}/chat/completions", body, headers)
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request) as said:
                message: dict[str, Any] = json.load(said)["choices"][0]["message"]
        except urllib.error.HTTPError as error:
            why = json.load(error)["error"]
            raise PolicyError(why["message"], why["code"]) from None
        return message


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
