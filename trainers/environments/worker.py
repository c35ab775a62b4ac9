"""Plays the samples of an environment: a JSON line with a question in, a JSON line with what comes of it out.

``python -m trainers.environments.worker MODULE:CLASS`` keeps an instance for each sample that is under way. What an
environment raises is said as ``error``. What it prints goes nowhere: stdout is for answers.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Callable
from typing import Any

from trainers.environments import Environment, Messages, Step, Task
from trainers.rewards.own_worker import find, mute, questions_apart, stream_apart


class Instances:
    """The instances of the samples under way.

    Args:
        make: Makes one.
    """

    def __init__(self, make: Callable[[], Environment]) -> None:
        self._make = make
        self._alive: dict[int, tuple[Environment, int]] = {}

    def answer(self, question: dict[str, Any]) -> str:
        """What comes of a question, as JSON; see ``trainers.environments.pool`` for those that there are."""
        try:
            return json.dumps(self._answer(question))
        except Exception as error:  # noqa: BLE001 - it is the user's, and costs its own sample only
            return json.dumps({"error": f"{type(error).__name__}: {error}"[:300]})

    def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        if question["do"] == "tools":
            return {"tools": list(getattr(self._make, "tools", ()))}
        if question["do"] == "open":
            return {"messages": checked(self._make().reset(Task(**question["task"])))}
        return self._step(question)

    def _step(self, question: dict[str, Any]) -> dict[str, Any]:
        for key in question["over"]:
            self._close(self._alive.pop(key, (None, 0))[0])
        key, answers = question["key"], question["answers"]
        environment, given = self._alive.pop(key, (None, -1))
        if environment is None or given != len(answers) - 1:
            environment = self._make()
            environment.reset(Task(**question["task"]))
            for answer in answers[:-1]:
                environment.step(answer)
        found = Step(*environment.step(answers[-1]))
        reward, done = float(found.reward), bool(found.done)
        if not math.isfinite(reward):
            raise ValueError(f"the reward of a step is {reward}")
        messages = [] if done or question["last"] else checked(found.messages)
        if done or question["last"]:
            self._close(environment)
        else:
            self._alive[key] = environment, len(answers)
        return {"messages": messages, "reward": reward, "done": done}

    @staticmethod
    def _close(environment: Environment | None) -> None:
        with contextlib.suppress(Exception):  # its sample is over, whatever it says now
            if environment is not None and hasattr(environment, "close"):
                environment.close()


def checked(messages: Messages) -> list[dict[str, Any]]:
    """The messages that an environment gave, a text as what a user says.

    Raises:
        TypeError: They are neither a text nor messages.
    """
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    for said in messages:
        if not isinstance(said, dict) or not all(isinstance(said.get(key), str) for key in ("role", "content")):
            raise TypeError(f"a message needs role and content, both texts: {str(said)[:100]}")
    return list(messages)


def main() -> None:
    """Step the environment named on the command line, one request a line, until stdin ends."""
    questions, answers = questions_apart(), stream_apart()
    instances = Instances(find(sys.argv[1]))
    print(json.dumps("ready"), file=answers, flush=True)
    mute(2)  # nobody reads it from here on, and a full pipe would hold the environment up
    for line in questions:
        print(instances.answer(json.loads(line)), file=answers, flush=True)


if __name__ == "__main__":
    main()
