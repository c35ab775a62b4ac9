"""The environment ``builtin/python``: a tool that runs Python in the sandbox, and a reward at the end."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from trainers.environments import Environment, Messages, Step, Task, parse_tool_call
from trainers.environments.calculator import number_of
from trainers.rewards.answers import code_of
from trainers.rewards.code import passes, trials_of
from trainers.rewards.sandbox import Limits, Sandbox, Trial, best_sandbox

WALL_S = 5.0
"""Longest that a program may run."""
MOST_CHARACTERS = 2000
"""Of a program's output that the model is shown, the end of it."""


class Python(Environment):
    """A call of the tool gets what the program prints; an answer without one is the last.

    That is judged by the row's tests, as the share that its program passes, or, where the row has none, by its last
    number.
    """

    tools: ClassVar[list[dict[str, Any]]] = [
        {
            "type": "function",
            "function": {
                "name": "python",
                "description": "Runs a Python program without network and files; what it prints is returned.",
                "parameters": {
                    "type": "object",
                    "properties": {"code": {"type": "string"}},
                    "required": ["code"],
                },
            },
        }
    ]

    def reset(self, task: Task) -> Messages:
        """Keep in mind what the answer is judged by."""
        self._task = task
        return task.messages

    def step(self, answer: str) -> Step:
        """What the program of the call printed, or the reward."""
        call = parse_tool_call(answer)
        if call is None:
            return Step(reward=self._worth(answer), done=True)
        if not call.error and call.name != "python":
            return _said(f"There is no tool {call.name}; there is: python.")
        return _said(call.error or _printed(str(call.arguments.get("code", ""))))

    def _worth(self, answer: str) -> float:
        if not self._task.row.get("tests"):
            right = number_of(self._task.answer)
            return float(right is not None and number_of(answer) == right)
        tests = trials_of(self._task.row)
        outcomes = sandbox().run(code_of(answer), [test for test, _ in tests])
        return sum(passes(found, wanted) for found, (_, wanted) in zip(outcomes, tests, strict=True)) / len(tests)


@functools.cache
def sandbox() -> Sandbox:
    """The best walls of this machine."""
    return best_sandbox(Limits(wall_s=WALL_S))


def _said(text: str) -> Step:
    return Step(messages=[{"role": "tool", "content": text}])


def _printed(code: str) -> str:
    (outcome,) = sandbox().run(code, [Trial()])
    if outcome.timed_out:
        return f"The program took more than {WALL_S:g} s and was ended."
    return outcome.output[-MOST_CHARACTERS:] or "The program printed nothing."
