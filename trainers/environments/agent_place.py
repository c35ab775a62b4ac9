"""A process that agents run beside: what they are forks of, and the endpoint by which they reach the policy."""

from __future__ import annotations

import itertools
from concurrent.futures import wait
from typing import Any

from trainers.chat_endpoint import Answer, ChatEndpoint
from trainers.environments.agent_host import allow_files
from trainers.environments.agents import AgentProcess

GRACE_S = 60.0
"""What the process of all agents may take beyond an episode's limit before it is ended itself."""


class AgentPlace:
    """Has agents play samples, many at once; safe to call from several threads.

    Args:
        name: As ``data.environment`` has it.

    Raises:
        ValueError: The agent cannot be imported.
    """

    def __init__(self, name: str) -> None:
        allow_files()
        self._process, self._endpoint, self._keys = AgentProcess(name), ChatEndpoint(), itertools.count()

    def play(self, question: dict[str, Any], answer: Answer) -> dict[str, Any]:
        """What an agent's process says of a sample: its ``reward``, or the ``error``.

        Args:
            question: Its ``task``, ``seed`` and ``limit_s``.
            answer: To what it asks the policy.
        """
        policy = self._endpoint.open(answer)
        reach = {"base_url": policy.base_url, "api_key": policy.api_key, "model": policy.model}
        try:
            future = self._process.play({**question, "key": next(self._keys), "policy": reach})
            done, _ = wait([future], question["limit_s"] + GRACE_S)
            if not done:
                self._process.close()  # all that are under way hear of it
            return future.result()
        finally:
            self._endpoint.end(policy)

    def close(self) -> None:
        """End the agents and what serves them."""
        self._process.close()
        self._endpoint.close()
