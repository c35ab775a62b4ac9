"""A worker's side of agents on its node: what they ask the policy waits for the trainer, which fetches it through Ray.

Their keys and requests over HTTP stay on the node's loopback.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trainers.environments.agent_place import AgentPlace
from trainers.episodes import RefusedError
from trainers.roles.calls import NotLoadedError


@dataclass(frozen=True)
class Asked:
    """A request for an answer of the policy, and its number among those of its sample."""

    number: int
    request: dict[str, Any]


@dataclass(frozen=True)
class Said:
    """The policy's answer, or why there is none: what a ``RefusedError`` is made of."""

    completion: dict[str, Any] = field(default_factory=dict)
    refusal: tuple[int, str, str] | None = None


@dataclass(frozen=True)
class Over:
    """A sample is over; what ``AgentPlace.play`` found."""

    found: dict[str, Any]


class AgentRelay:
    """The samples that agents beside this worker play.

    Args:
        name: As ``data.environment`` has it.

    Raises:
        ValueError: The agent cannot be imported.
    """

    def __init__(self, name: str) -> None:
        self._place = AgentPlace(name)
        self._samples: dict[int, _Sample] = {}

    def begin(self, key: int, question: dict[str, Any]) -> None:
        """Have a sample played, in a thread of its own; arguments as for ``AgentPlace.play``."""
        sample = self._samples[key] = _Sample()
        play = self._place.play

        def run() -> None:
            try:
                found = play(question, sample.ask)
            except Exception as error:  # noqa: BLE001 - the outermost edge of a thread: the trainer is told
                found = {"error": f"{type(error).__name__}: {error}"[:300]}
            sample.told.put(Over(found))

        threading.Thread(target=run, daemon=True, name="sample").start()

    def listen(self, key: int) -> Asked | Over:
        """What comes next of a sample, when it comes.

        Raises:
            NotLoadedError: It was begun in another process, which this one has followed.
        """
        if key not in self._samples:
            raise NotLoadedError("call begin_sample() first")
        told = self._samples[key].told.get()
        if isinstance(told, Over):
            del self._samples[key]
        return told

    def answer(self, key: int, number: int, said: Said) -> None:
        """Answer a request; nobody may wait for it any more."""
        if (sample := self._samples.get(key)) is not None:
            sample.said[number].put(said)


class _Sample:
    """What a sample has asked and heard."""

    def __init__(self) -> None:
        self.told: queue.Queue[Asked | Over] = queue.Queue()
        self.said: list[queue.Queue[Said]] = []
        self._lock = threading.Lock()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request of the agent."""
        with self._lock:
            number = len(self.said)
            self.said.append(queue.Queue())
        self.told.put(Asked(number, request))
        said = self.said[number].get()
        if said.refusal is not None:
            raise RefusedError(*said.refusal)
        return said.completion


def heard(answer: Callable[[dict[str, Any]], dict[str, Any]], request: dict[str, Any]) -> Said:
    """What ``answer`` says to ``request``, as it travels to a worker."""
    try:
        return Said(answer(request))
    except RefusedError as error:
        return Said(refusal=(error.status, str(error), error.code))
    except Exception as error:  # noqa: BLE001 - as the endpoint tells it: the run ends for what is wrong with engines
        return Said(refusal=(500, f"{type(error).__name__}: {error}"[:300], "server_error"))
